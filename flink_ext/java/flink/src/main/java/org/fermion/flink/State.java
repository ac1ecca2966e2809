package org.fermion.flink;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Writes what checkpoints keep, and what tasks send each other.
 *
 * @param writer writes a value
 * @param reader reads what it wrote
 */
record State<T>(Writer<T> writer, Reader<T> reader) implements SimpleVersionedSerializer<T> {
    /** Writes a value. */
    interface Writer<T> {
        void write(DataOutputStream out, T value) throws IOException;
    }

    /** Reads a value. */
    interface Reader<T> {
        T read(DataInputStream in) throws IOException;
    }

    @Override
    public int getVersion() {
        return 1;
    }

    @Override
    public byte[] serialize(T value) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        writer.write(new DataOutputStream(bytes), value);
        return bytes.toByteArray();
    }

    @Override
    public T deserialize(int version, byte[] bytes) throws IOException {
        return reader.read(new DataInputStream(new ByteArrayInputStream(bytes)));
    }

    /** Write a text of any length. */
    static void writeText(DataOutputStream out, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    static String readText(DataInputStream in) throws IOException {
        return new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8);
    }

    static void writeSplits(DataOutputStream out, List<FermionSplit> splits) throws IOException {
        out.writeInt(splits.size());
        for (FermionSplit split : splits) {
            FermionSplit.write(out, split);
        }
    }

    static List<FermionSplit> readSplits(DataInputStream in) throws IOException {
        List<FermionSplit> splits = new ArrayList<>();
        for (int left = in.readInt(); left > 0; left--) {
            splits.add(FermionSplit.read(in));
        }
        return splits;
    }
}
