package org.fermion.worker;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;

/**
 * A Python process that answers requests, one after the other. One thread uses it at a time.
 *
 * <p>A request is a line of JSON, which an Arrow IPC stream may follow; so is an answer. Another thread may
 * close it: a request that waits then fails.
 */
public final class PythonWorker implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int END_SECONDS_MAX = 5;
    private static final int LOG_WAITS_MAX = 40;
    private static final int LOG_WAIT_MILLIS = 50;
    private static final String ENDED = "worker ended: ";

    private final WorkerDaemon daemon;
    private final WorkerStream stream;
    private final long pid;
    private final Path log;
    private boolean isClosed;

    PythonWorker(WorkerDaemon daemon, SocketChannel channel) throws IOException {
        this.daemon = daemon;
        this.stream = new WorkerStream(channel);
        byte[] greeting = stream.readLine();
        if (greeting == null) {
            throw new WorkerException("", "the Python worker ended before it was ready");
        }
        JsonNode worker = JSON.readTree(greeting);
        pid = worker.get("pid").asLong();
        log = Path.of(worker.get("log").asText());
    }

    /** A request for an operation, without arguments yet. */
    public static ObjectNode request(String operation) {
        return JSON.createObjectNode().put("op", operation);
    }

    /** The id of its process. */
    public long pid() {
        return pid;
    }

    /**
     * Send a request and wait for the answer.
     *
     * @throws WorkerException it refuses, or has ended: then the message has its log
     */
    public JsonNode call(ObjectNode request) throws IOException {
        send(request, null);
        return answer();
    }

    /** Send a request, and rows after it unless they are null; {@link #answer} gets the answer. */
    public void send(ObjectNode request, VectorSchemaRoot rows) throws IOException {
        if (rows != null) {
            request.put("rows", true);
        }
        try {
            stream.write(JSON.writeValueAsBytes(request));
            stream.write(new byte[] {'\n'});
            if (rows != null) {
                // Not closed: that would close the rows' dictionaries and the stream.
                @SuppressWarnings("resource")
                ArrowStreamWriter writer = new ArrowStreamWriter(rows, null, stream);
                writer.start();
                writer.writeBatch();
                writer.end();
            }
            stream.flush();
        } catch (IOException error) {
            throw ended(error);
        }
    }

    /**
     * The answer to the oldest request without one.
     *
     * @throws WorkerException it refuses, or has ended: then the message has its log
     */
    public JsonNode answer() throws IOException {
        byte[] line;
        try {
            line = stream.readLine();
        } catch (IOException error) {
            throw ended(error);
        }
        if (line == null) {
            throw ended(null);
        }
        JsonNode answer = JSON.readTree(line);
        if (answer.has("error")) {
            throw new WorkerException(answer.get("kind").asText(), answer.get("error").asText());
        }
        return answer;
    }

    /**
     * The Arrow stream that follows an answer. Read it to its end before the next request; close it with
     * {@code close(false)}.
     */
    public ArrowStreamReader rows(BufferAllocator memory) {
        return new ArrowStreamReader(stream, memory);
    }

    /** The error of a worker that is gone; for one that fails while rows are read. */
    public IOException ended(IOException cause) {
        if (isClosed || Thread.currentThread().isInterrupted()) {
            return cause != null ? cause : new IOException("the Python worker was closed");
        }
        String said = WorkerDaemon.logged(log);
        // The daemon writes how the worker ended, a moment after it did.
        for (int waits = 0; waits < LOG_WAITS_MAX && !said.contains(ENDED); waits++) {
            try {
                Thread.sleep(LOG_WAIT_MILLIS);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                break;
            }
            said = WorkerDaemon.logged(log);
        }
        WorkerException error = new WorkerException("", "the Python worker " + pid + " has ended. Its log:\n" + said);
        error.initCause(cause);
        return error;
    }

    /** End the process: it discards what is not finished. */
    @Override
    public void close() {
        synchronized (this) {
            if (isClosed) {
                return;
            }
            isClosed = true;
        }
        stream.close();
        ProcessHandle.of(pid).ifPresent(process -> {
            try {
                process.onExit().get(END_SECONDS_MAX, TimeUnit.SECONDS);
            } catch (TimeoutException | ExecutionException error) {
                process.destroyForcibly();
            } catch (InterruptedException error) {
                process.destroyForcibly();
                Thread.currentThread().interrupt();
            }
        });
        daemon.released();
    }
}
