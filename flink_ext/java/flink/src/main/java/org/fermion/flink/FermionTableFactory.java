package org.fermion.flink;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.table.api.ValidationException;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;

/** 'connector' = 'fermion', and the tables of a catalog. */
public final class FermionTableFactory implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    private static final Set<String> OF_FLINK =
            Set.of(FactoryUtil.CONNECTOR.key(), FactoryUtil.PROPERTY_VERSION.key(), FactoryUtil.SINK_PARALLELISM.key(),
                    FactoryUtil.SOURCE_PARALLELISM.key());

    private final Map<String, String> catalog;

    /** Of tables without a catalog of ours; Flink finds it by its name. */
    public FermionTableFactory() {
        this(Map.of());
    }

    /** Of the tables of a catalog, whose options hold for them. */
    FermionTableFactory(Map<String, String> catalog) {
        this.catalog = catalog;
    }

    @Override
    public String factoryIdentifier() {
        return FermionOptions.IDENTIFIER;
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(FermionOptions.PATH);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        Set<ConfigOption<?>> options = new HashSet<>(FermionOptions.OF_TABLES);
        options.add(FactoryUtil.SINK_PARALLELISM);
        options.add(FactoryUtil.SOURCE_PARALLELISM);
        return options;
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        Map<String, String> options = options(context);
        TableAccess table = access(options, context);
        ScanVersion version = ScanVersion.of(options);
        StreamSettings stream = StreamSettings.of(options, table, version, context.getConfiguration());
        return new FermionTableSource(table, version, stream, context.getPhysicalRowDataType(),
                parallelism(options, FactoryUtil.SOURCE_PARALLELISM));
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        Map<String, String> options = options(context);
        TableAccess table = access(options, context);
        ScanVersion.of(options).refuse("INSERT");
        String user = options.get(FermionOptions.COMMIT_USER.key());
        boolean isNewUser = user != null && isStreaming(context.getConfiguration());
        return new FermionTableSink(table, context.getPhysicalRowDataType(), context.getPrimaryKeyIndexes(),
                context.getCatalogTable().getPartitionKeys(),
                user != null ? user : "flink-" + UUID.randomUUID(), isNewUser,
                parallelism(options, FactoryUtil.SINK_PARALLELISM));
    }

    private static boolean isStreaming(ReadableConfig configuration) {
        return configuration.get(ExecutionOptions.RUNTIME_MODE) == RuntimeExecutionMode.STREAMING;
    }

    private static Integer parallelism(Map<String, String> options, ConfigOption<Integer> option) {
        String text = options.get(option.key());
        try {
            return text == null ? null : Integer.valueOf(text);
        } catch (NumberFormatException error) {
            throw new ValidationException("'" + option.key() + "' = '" + text + "': expected a number", error);
        }
    }

    private Map<String, String> options(Context context) {
        Map<String, String> options = new HashMap<>();
        for (ConfigOption<?> option : Set.of(FermionOptions.PYTHON, FermionOptions.STORAGE_OPTIONS)) {
            if (catalog.containsKey(option.key())) {
                options.put(option.key(), catalog.get(option.key()));
            }
        }
        options.putAll(context.getCatalogTable().getOptions());
        return options;
    }

    /** Check that each option is known: of the connector, or a property of the table. */
    private TableAccess access(Map<String, String> options, Context context) {
        if (!options.containsKey(FermionOptions.PATH.key())) {
            throw new ValidationException(
                    context.getObjectIdentifier() + ": 'path' is missing, which says where the table lies");
        }
        Set<String> unknown = new TreeSet<>(options.keySet());
        unknown.removeAll(OF_FLINK);
        unknown.remove(FermionOptions.PATH.key());
        FermionOptions.OF_TABLES.forEach(option -> unknown.remove(option.key()));
        TableAccess table = TableAccess.of(options);
        if (!unknown.isEmpty()) {
            JsonNode properties;
            try {
                properties = table.ask(table.request("describe")).get("properties");
            } catch (IOException error) {
                throw new ValidationException(context.getObjectIdentifier() + ": " + error.getMessage(), error);
            }
            properties.fieldNames().forEachRemaining(unknown::remove);
        }
        if (!unknown.isEmpty()) {
            Set<String> known = new TreeSet<>();
            FermionOptions.OF_TABLES.forEach(option -> known.add(option.key()));
            throw new ValidationException(context.getObjectIdentifier() + ": unknown options " + unknown
                    + ". Statements take " + known + "; properties are set by CREATE TABLE and ALTER TABLE SET");
        }
        return table;
    }
}
