package org.fermion.worker;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SocketChannel;
import java.nio.channels.WritableByteChannel;

/** A socket with buffers for lines, from which large pieces are read and to which they are written directly. */
final class WorkerStream implements ReadableByteChannel, WritableByteChannel {
    private static final int BUFFER_BYTES = 1 << 16;

    private final SocketChannel channel;
    private final ByteBuffer arrived = ByteBuffer.allocateDirect(BUFFER_BYTES).limit(0);
    private final ByteBuffer leaving = ByteBuffer.allocateDirect(BUFFER_BYTES);

    WorkerStream(SocketChannel channel) {
        this.channel = channel;
    }

    /** Bytes up to the next line feed, without it; null: the other side has closed the socket. */
    byte[] readLine() throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        while (true) {
            while (arrived.hasRemaining()) {
                byte next = arrived.get();
                if (next == '\n') {
                    return line.toByteArray();
                }
                line.write(next);
            }
            arrived.clear();
            int count = channel.read(arrived);
            arrived.flip();
            if (count < 0) {
                return null;
            }
        }
    }

    @Override
    public int read(ByteBuffer target) throws IOException {
        if (!arrived.hasRemaining()) {
            if (target.remaining() >= BUFFER_BYTES) {
                return channel.read(target);
            }
            arrived.clear();
            int count = channel.read(arrived);
            arrived.flip();
            if (count < 0) {
                return count;
            }
        }
        int count = Math.min(target.remaining(), arrived.remaining());
        target.put(arrived.slice(arrived.position(), count));
        arrived.position(arrived.position() + count);
        return count;
    }

    void write(byte[] bytes) throws IOException {
        write(ByteBuffer.wrap(bytes));
    }

    @Override
    public int write(ByteBuffer source) throws IOException {
        int count = source.remaining();
        if (count > leaving.remaining()) {
            flush();
        }
        if (count > leaving.remaining()) {
            writeAll(source);
        } else {
            leaving.put(source);
        }
        return count;
    }

    void flush() throws IOException {
        leaving.flip();
        try {
            writeAll(leaving);
        } finally {
            leaving.clear();
        }
    }

    private void writeAll(ByteBuffer source) throws IOException {
        while (source.hasRemaining()) {
            channel.write(source);
        }
    }

    @Override
    public boolean isOpen() {
        return channel.isOpen();
    }

    @Override
    public void close() {
        try {
            channel.close();
        } catch (IOException error) {
            // It is gone then too.
        }
    }
}
