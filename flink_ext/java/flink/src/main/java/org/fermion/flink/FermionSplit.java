package org.fermion.flink;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
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
 */
record FermionSplit(String splitId, long sequence, String request, long emitted) implements SourceSplit {

    FermionSplit after(long rows) {
        return new FermionSplit(splitId, sequence, request, rows);
    }

    static void write(DataOutputStream out, FermionSplit split) throws IOException {
        out.writeUTF(split.splitId);
        out.writeLong(split.sequence);
        byte[] request = split.request.getBytes(StandardCharsets.UTF_8);
        out.writeInt(request.length);
        out.write(request);
        out.writeLong(split.emitted);
    }

    static FermionSplit read(DataInputStream in) throws IOException {
        String splitId = in.readUTF();
        long sequence = in.readLong();
        String request = new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8);
        return new FermionSplit(splitId, sequence, request, in.readLong());
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
