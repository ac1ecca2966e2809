package org.fermion.flink;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * What a writer wrote for a checkpoint.
 *
 * @param user who commits: of the job that wrote it, also after a restore by another one
 * @param checkpoint its number
 * @param messages JSON, which only Python reads
 */
record Committable(String user, long checkpoint, String messages) {

    Committable at(long number) {
        return new Committable(user, number, messages);
    }

    /** Writes committables for checkpoints and committers. */
    static final class Serializer implements SimpleVersionedSerializer<Committable> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(Committable files) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            out.writeUTF(files.user);
            out.writeLong(files.checkpoint);
            byte[] messages = files.messages.getBytes(StandardCharsets.UTF_8);
            out.writeInt(messages.length);
            out.write(messages);
            return bytes.toByteArray();
        }

        @Override
        public Committable deserialize(int version, byte[] bytes) throws IOException {
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            String user = in.readUTF();
            long checkpoint = in.readLong();
            return new Committable(user, checkpoint, new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8));
        }
    }
}
