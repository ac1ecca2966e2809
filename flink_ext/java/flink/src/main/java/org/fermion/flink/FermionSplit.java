package org.fermion.flink;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.core.io.SimpleVersionedSerializer;

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

    FermionSplit after(long rows) {
        return new FermionSplit(splitId, sequence, request, rows, place);
    }

    static void write(DataOutputStream out, FermionSplit split) throws IOException {
        out.writeUTF(split.splitId);
        out.writeLong(split.sequence);
        byte[] request = split.request.getBytes(StandardCharsets.UTF_8);
        out.writeInt(request.length);
        out.write(request);
        out.writeLong(split.emitted);
        out.writeLong(split.place.phase);
        out.writeInt(split.place.owner);
        out.writeLong(split.place.position);
    }

    static FermionSplit read(DataInputStream in) throws IOException {
        String splitId = in.readUTF();
        long sequence = in.readLong();
        String request = new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8);
        return new FermionSplit(splitId, sequence, request, in.readLong(),
                new Place(in.readLong(), in.readInt(), in.readLong()));
    }

    /** Writes splits for checkpoints and readers. */
    static final class Serializer implements SimpleVersionedSerializer<FermionSplit> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(FermionSplit split) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            write(new DataOutputStream(bytes), split);
            return bytes.toByteArray();
        }

        @Override
        public FermionSplit deserialize(int version, byte[] bytes) throws IOException {
            return read(new DataInputStream(new ByteArrayInputStream(bytes)));
        }
    }
}
