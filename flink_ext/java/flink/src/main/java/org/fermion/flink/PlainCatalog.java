package org.fermion.flink;

import java.util.List;
import org.apache.flink.table.catalog.AbstractCatalog;
import org.apache.flink.table.catalog.CatalogDatabase;
import org.apache.flink.table.catalog.CatalogFunction;
import org.apache.flink.table.catalog.CatalogPartition;
import org.apache.flink.table.catalog.CatalogPartitionSpec;
import org.apache.flink.table.catalog.ObjectPath;
import org.apache.flink.table.catalog.exceptions.CatalogException;
import org.apache.flink.table.catalog.exceptions.FunctionNotExistException;
import org.apache.flink.table.catalog.exceptions.PartitionNotExistException;
import org.apache.flink.table.catalog.stats.CatalogColumnStatistics;
import org.apache.flink.table.catalog.stats.CatalogTableStatistics;
import org.apache.flink.table.expressions.Expression;

/** A catalog without views, functions, partitions of its own and stored statistics. */
abstract class PlainCatalog extends AbstractCatalog {
    PlainCatalog(String name, String defaultDatabase) {
        super(name, defaultDatabase);
    }

    private static CatalogException without(String what) {
        return new CatalogException("catalogs of Fermion have no " + what);
    }

    @Override
    public void alterDatabase(String name, CatalogDatabase database, boolean ignoreIfNotExists) {
        throw without("properties of databases");
    }

    @Override
    public List<String> listViews(String database) {
        return List.of();
    }

    @Override
    public List<CatalogPartitionSpec> listPartitions(ObjectPath table) {
        throw without("list of partitions: read SELECT DISTINCT of the columns");
    }

    @Override
    public List<CatalogPartitionSpec> listPartitions(ObjectPath table, CatalogPartitionSpec partition) {
        return listPartitions(table);
    }

    @Override
    public List<CatalogPartitionSpec> listPartitionsByFilter(ObjectPath table, List<Expression> filters) {
        return listPartitions(table);
    }

    @Override
    public CatalogPartition getPartition(ObjectPath table, CatalogPartitionSpec partition)
            throws PartitionNotExistException {
        throw new PartitionNotExistException(getName(), table, partition);
    }

    @Override
    public boolean partitionExists(ObjectPath table, CatalogPartitionSpec partition) {
        return false;
    }

    @Override
    public void createPartition(
            ObjectPath table, CatalogPartitionSpec partition, CatalogPartition made, boolean ignoreIfExists) {
        throw without("ADD PARTITION: rows make partitions");
    }

    @Override
    public void dropPartition(ObjectPath table, CatalogPartitionSpec partition, boolean ignoreIfNotExists) {
        throw without("DROP PARTITION: use INSERT OVERWRITE ... PARTITION without rows");
    }

    @Override
    public void alterPartition(
            ObjectPath table, CatalogPartitionSpec partition, CatalogPartition changed, boolean ignoreIfNotExists) {
        throw without("properties of partitions");
    }

    @Override
    public List<String> listFunctions(String database) {
        return List.of();
    }

    @Override
    public CatalogFunction getFunction(ObjectPath name) throws FunctionNotExistException {
        throw new FunctionNotExistException(getName(), name);
    }

    @Override
    public boolean functionExists(ObjectPath name) {
        return false;
    }

    @Override
    public void createFunction(ObjectPath name, CatalogFunction function, boolean ignoreIfExists) {
        throw without("functions: use CREATE TEMPORARY FUNCTION");
    }

    @Override
    public void alterFunction(ObjectPath name, CatalogFunction function, boolean ignoreIfNotExists) {
        throw without("functions");
    }

    @Override
    public void dropFunction(ObjectPath name, boolean ignoreIfNotExists) {
        throw without("functions");
    }

    @Override
    public CatalogTableStatistics getTableStatistics(ObjectPath table) {
        return CatalogTableStatistics.UNKNOWN;
    }

    @Override
    public CatalogColumnStatistics getTableColumnStatistics(ObjectPath table) {
        return CatalogColumnStatistics.UNKNOWN;
    }

    @Override
    public CatalogTableStatistics getPartitionStatistics(ObjectPath table, CatalogPartitionSpec partition) {
        return CatalogTableStatistics.UNKNOWN;
    }

    @Override
    public CatalogColumnStatistics getPartitionColumnStatistics(ObjectPath table, CatalogPartitionSpec partition) {
        return CatalogColumnStatistics.UNKNOWN;
    }

    @Override
    public void alterTableStatistics(ObjectPath table, CatalogTableStatistics statistics, boolean ignoreIfNotExists) {
        throw without("stored statistics: files have their own");
    }

    @Override
    public void alterTableColumnStatistics(
            ObjectPath table, CatalogColumnStatistics statistics, boolean ignoreIfNotExists) {
        throw without("stored statistics: files have their own");
    }

    @Override
    public void alterPartitionStatistics(ObjectPath table, CatalogPartitionSpec partition,
            CatalogTableStatistics statistics, boolean ignoreIfNotExists) {
        throw without("stored statistics: files have their own");
    }

    @Override
    public void alterPartitionColumnStatistics(ObjectPath table, CatalogPartitionSpec partition,
            CatalogColumnStatistics statistics, boolean ignoreIfNotExists) {
        throw without("stored statistics: files have their own");
    }
}
