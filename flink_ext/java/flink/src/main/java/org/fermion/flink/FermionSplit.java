package org.fermion.flink;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import org.apache.flink.api.connector.source.SourceSplit;

/**
 * What a reader reads at a time.
 *
 * @param splitId its name in checkpoints
 * @param sequence splits of one reader are read in this order, also after a restore
 * @param request fields of the request for its rows, a JSON object: see {@link FermionSource}
 * @param emitted rows that were emitted; of the state of a checkpoint
 * @param place of a stream: where it stands among the others
 */
record FermionSplit(String splitId, long sequence, String request, long emitted, Place place)
        implements SourceSplit, Serializable {
    private static final long serialVersionUID = 1L;

    /**
     * Where a split of a stream stands among the others.
     *
     * @param phase splits of later phases wait until those of earlier ones are read
     * @param owner splits of one owner go to one reader, in their order; -1: any reader
     * @param position the snapshot that it needs, and all later ones
     */
    record Place(long phase, int owner, long position) implements Serializable {
        private static final long serialVersionUID = 1L;
        static final Place NONE = new Place(0, -1, 0);
    }

    /** A split of a snapshot that was planned. */
    static FermionSplit of(JsonNode plan, JsonNode split, long sequence, Place place) {
        ObjectNode request = TableAccess.JSON.createObjectNode();
        request.set("snapshot", plan.get("snapshot"));
        request.set("schema", plan.get("schema"));
        request.set("split", split);
        return new FermionSplit("split-" + sequence, sequence, request.toString(), 0, place);
    }

    FermionSplit after(long rows) {
        return new FermionSplit(splitId, sequence, request, rows, place);
    }

    static void write(DataOutputStream out, FermionSplit split) throws IOException {
        out.writeUTF(split.splitId);
        out.writeLong(split.sequence);
        State.writeText(out, split.request);
        out.writeLong(split.emitted);
        out.writeLong(split.place.phase);
        out.writeInt(split.place.owner);
        out.writeLong(split.place.position);
    }

    static FermionSplit read(DataInputStream in) throws IOException {
        String splitId = in.readUTF();
        long sequence = in.readLong();
        return new FermionSplit(splitId, sequence, State.readText(in), in.readLong(),
                new Place(in.readLong(), in.readInt(), in.readLong()));
    }
}
