package org.fermion.flink;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.streaming.api.connector.sink2.CommittableMessage;
import org.apache.flink.streaming.api.connector.sink2.CommittableMessageTypeInfo;
import org.apache.flink.streaming.api.connector.sink2.CommittableWithLineage;
import org.apache.flink.streaming.api.connector.sink2.SupportsPreCommitTopology;
import org.apache.flink.streaming.api.connector.sink2.SupportsPreWriteTopology;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.logical.RowType;

/**
 * Writes data files in parallel, and commits all of a checkpoint as one snapshot, once.
 *
 * <p>The identity of a commit is a user and the checkpoint's number. Both travel with the committables, so
 * what a restored job commits again has the identity that it had before.
 */
final class FermionSink implements Sink<RowData>, SupportsCommitter<Committable>, SupportsPreWriteTopology<RowData>,
        SupportsPreCommitTopology<Committable, Committable> {
    private static final long serialVersionUID = 1L;
    private static final int SPREAD = 0x9E3779B1;

    private final TableAccess table;
    private final RowType rows;
    private final int[] key;
    private final String user;
    private final boolean isNewUser;
    private final String overwrite;

    /**
     * A sink.
     *
     * @param rows columns of the rows
     * @param key positions of the primary key among them; empty: rows are appended
     * @param user of the commits
     * @param isNewUser whether commits of the user must not be there when the job begins
     * @param overwrite what the rows replace, a JSON object; null: nothing
     */
    FermionSink(TableAccess table, RowType rows, int[] key, String user, boolean isNewUser, String overwrite) {
        this.table = table;
        this.rows = rows;
        this.key = key;
        this.user = user;
        this.isNewUser = isNewUser;
        this.overwrite = overwrite;
    }

    /** All rows of a key go to one writer, so that they stay in order. */
    @Override
    public DataStream<RowData> addPreWriteTopology(DataStream<RowData> input) {
        if (key.length == 0) {
            return input;
        }
        RowData.FieldGetter[] getters = new RowData.FieldGetter[key.length];
        for (int at = 0; at < key.length; at++) {
            getters[at] = RowData.createFieldGetter(rows.getTypeAt(key[at]), key[at]);
        }
        return input.partitionCustom(
                (hash, writers) -> Math.floorMod(hash * SPREAD, writers),
                row -> {
                    int hash = 1;
                    for (RowData.FieldGetter getter : getters) {
                        Object value = getter.getFieldOrNull(row);
                        hash = 31 * hash + (value == null ? 0 : hash(value));
                    }
                    return hash;
                });
    }

    private static int hash(Object value) {
        return value instanceof byte[] bytes ? java.util.Arrays.hashCode(bytes) : value.hashCode();
    }

    @Override
    public SinkWriter<RowData> createWriter(WriterInitContext context) throws IOException {
        boolean isFirst = context.getTaskInfo().getIndexOfThisSubtask() == 0;
        if (isNewUser && isFirst && context.getRestoredCheckpointId().isEmpty()) {
            table.ask(table.request("check_user").put("user", user));
        }
        return new FilesWriter(table, rows, key.length > 0, user, overwriteOf());
    }

    private ObjectNode overwriteOf() {
        return overwrite == null ? null : TableAccess.jsonObject(overwrite);
    }

    /** Give each committable the number of its checkpoint; all of them go to the first committer. */
    @Override
    public DataStream<CommittableMessage<Committable>> addPreCommitTopology(
            DataStream<CommittableMessage<Committable>> written) {
        return written
                .map(message -> message instanceof CommittableWithLineage<Committable> files
                        ? files.map(each -> each.at(files.getCheckpointIdOrEOI()))
                        : message)
                .returns(CommittableMessageTypeInfo.of(this::getCommittableSerializer))
                .global();
    }

    @Override
    public Committer<Committable> createCommitter(CommitterInitContext context) {
        return new SnapshotCommitter(table, overwriteOf());
    }

    @Override
    public SimpleVersionedSerializer<Committable> getCommittableSerializer() {
        return Committable.STATE;
    }

    @Override
    public SimpleVersionedSerializer<Committable> getWriteResultSerializer() {
        return Committable.STATE;
    }
}
