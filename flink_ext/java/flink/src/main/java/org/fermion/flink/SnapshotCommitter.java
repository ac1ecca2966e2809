package org.fermion.flink;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.connector.sink2.Committer;
import org.fermion.worker.PythonWorker;

/** Publishes the files of a checkpoint as one snapshot; those that are there already it leaves. */
final class SnapshotCommitter implements Committer<Committable> {
    private final TableAccess table;
    private final ObjectNode overwrite;
    private PythonWorker worker;

    SnapshotCommitter(TableAccess table, ObjectNode overwrite) {
        this.table = table;
        this.overwrite = overwrite;
    }

    private record Identity(String user, long checkpoint) {}

    @Override
    public void commit(Collection<CommitRequest<Committable>> requests) throws IOException {
        Map<Identity, List<CommitRequest<Committable>>> checkpoints = new LinkedHashMap<>();
        for (CommitRequest<Committable> request : requests) {
            Committable files = request.getCommittable();
            checkpoints.computeIfAbsent(new Identity(files.user(), files.checkpoint()), any -> new ArrayList<>())
                    .add(request);
        }
        for (var checkpoint : checkpoints.entrySet()) {
            Identity identity = checkpoint.getKey();
            ObjectNode ask = table.request("commit").put("user", identity.user).put("identifier", identity.checkpoint);
            ArrayNode messages = ask.putArray("messages");
            for (CommitRequest<Committable> request : checkpoint.getValue()) {
                TableAccess.JSON.readTree(request.getCommittable().messages()).forEach(messages::add);
            }
            if (overwrite != null) {
                ask.set("overwrite", overwrite);
            }
            if (worker == null) {
                worker = table.command().start();
            }
            if (worker.call(ask).get("again").asBoolean()) {
                checkpoint.getValue().forEach(CommitRequest::signalAlreadyCommitted);
            }
        }
    }

    @Override
    public void close() {
        if (worker != null) {
            worker.close();
        }
    }
}
