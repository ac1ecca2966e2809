package org.fermion.flink;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;

/**
 * What a writer wrote for a checkpoint.
 *
 * @param user who commits: of the job that wrote it, also after a restore by another one
 * @param checkpoint its number
 * @param messages JSON, which only Python reads
 */
record Committable(String user, long checkpoint, String messages) {
    static final State<Committable> STATE = new State<>(Committable::write, Committable::read);

    Committable at(long number) {
        return new Committable(user, number, messages);
    }

    private static void write(DataOutputStream out, Committable files) throws IOException {
        out.writeUTF(files.user);
        out.writeLong(files.checkpoint);
        State.writeText(out, files.messages);
    }

    private static Committable read(DataInputStream in) throws IOException {
        return new Committable(in.readUTF(), in.readLong(), State.readText(in));
    }
}
