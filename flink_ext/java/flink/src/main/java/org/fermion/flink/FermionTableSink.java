package org.fermion.flink;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.connector.sink.abilities.SupportsOverwrite;
import org.apache.flink.table.connector.sink.abilities.SupportsPartitioning;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;

/** INSERT: appends rows, upserts them by key, or replaces rows by them. */
final class FermionTableSink implements DynamicTableSink, SupportsOverwrite, SupportsPartitioning {
    private final TableAccess table;
    private final DataType type;
    private final int[] key;
    private final List<String> partitions;
    private final String user;
    private final boolean isNewUser;
    private final Integer parallelism;
    private boolean isOverwrite;
    private Map<String, String> partition = new HashMap<>();

    FermionTableSink(TableAccess table, DataType type, int[] key, List<String> partitions, String user,
            boolean isNewUser, Integer parallelism) {
        this.table = table;
        this.type = type;
        this.key = key;
        this.partitions = partitions;
        this.user = user;
        this.isNewUser = isNewUser;
        this.parallelism = parallelism;
    }

    @Override
    public ChangelogMode getChangelogMode(ChangelogMode requested) {
        return key.length > 0 ? ChangelogMode.upsert() : ChangelogMode.insertOnly();
    }

    @Override
    public void applyOverwrite(boolean overwrite) {
        isOverwrite = overwrite;
    }

    @Override
    public void applyStaticPartition(Map<String, String> values) {
        partition = new HashMap<>(values);
    }

    @Override
    public boolean requiresPartitionGrouping(boolean supportsGrouping) {
        return supportsGrouping && !partitions.isEmpty();
    }

    @Override
    public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
        String overwrite = null;
        if (isOverwrite) {
            ObjectNode replaced = TableAccess.JSON.createObjectNode();
            ObjectNode values = replaced.putObject("partition");
            partition.forEach(values::put);
            overwrite = replaced.toString();
        }
        FermionSink sink =
                new FermionSink(table, (RowType) type.getLogicalType(), key, user, isNewUser, overwrite);
        return parallelism == null ? SinkV2Provider.of(sink) : SinkV2Provider.of(sink, parallelism);
    }

    @Override
    public DynamicTableSink copy() {
        FermionTableSink copy = new FermionTableSink(table, type, key, partitions, user, isNewUser, parallelism);
        copy.isOverwrite = isOverwrite;
        copy.partition = partition;
        return copy;
    }

    @Override
    public String asSummaryString() {
        return "Fermion " + table.path();
    }
}
