package org.fermion.flink;

import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.table.catalog.Catalog;
import org.apache.flink.table.factories.CatalogFactory;
import org.apache.flink.table.factories.FactoryUtil;

/** CREATE CATALOG lake WITH ('type' = 'fermion', 'warehouse' = '...', 'python.executable' = '...'). */
public final class FermionCatalogFactory implements CatalogFactory {
    @Override
    public String factoryIdentifier() {
        return FermionOptions.IDENTIFIER;
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(FermionOptions.WAREHOUSE);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of(FermionOptions.DEFAULT_DATABASE, FermionOptions.STORAGE_OPTIONS, FermionOptions.PYTHON);
    }

    @Override
    public Catalog createCatalog(Context context) {
        FactoryUtil.createCatalogFactoryHelper(this, context).validate();
        return new FermionCatalog(context.getName(), context.getOptions());
    }
}
