package org.fermion.worker;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The Python process that forks workers: one for each command in a JVM, while workers are in use.
 *
 * <p>It has imported all modules, so that a worker begins at once. It ends when its standard input does, so
 * it does not outlive the JVM, and its last worker by moments only.
 */
final class WorkerDaemon {
    private static final Map<WorkerCommand, WorkerDaemon> RUNNING = new HashMap<>();
    private static final int LOG_BYTES_MAX = 8192;
    private static final int END_SECONDS_MAX = 10;
    /** A catalog asks again and again. */
    private static final int IDLE_MILLIS = 3000;

    private final WorkerCommand command;
    private final Process process;
    private final UnixDomainSocketAddress address;
    private int users;
    private int started;

    private WorkerDaemon(WorkerCommand command) throws IOException {
        this.command = command;
        Path log = Files.createTempFile("fermion-daemon-", ".log");
        try {
            ProcessBuilder builder = new ProcessBuilder(command.python(), "-m", "flink_ext.daemon", command.module());
            // They are about the JVM's own Python, as PyFlink's workers: this is another environment.
            builder.environment().keySet().removeAll(java.util.Set.of("PYTHONPATH", "PYTHONHOME"));
            builder.redirectError(ProcessBuilder.Redirect.to(log.toFile()));
            process = builder.start();
        } catch (IOException error) {
            Files.deleteIfExists(log);
            throw new IOException("cannot run " + command.line() + ": " + error.getMessage() + advice(), error);
        }
        BufferedReader said = new BufferedReader(
                new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String ready = said.readLine();
        String why = ready == null ? logged(log) : "";
        Files.deleteIfExists(log); // now, as nobody would if this JVM were killed; workers have logs of their own
        if (ready == null) {
            end();
            throw new IOException(command.line() + " ended before it was ready:\n" + why + advice());
        }
        address = UnixDomainSocketAddress.of(ready);
    }

    private static String advice() {
        return "\nSet '" + WorkerCommand.OPTION + "' (or the environment variable " + WorkerCommand.VARIABLE
                + ") to a Python that has Fermion installed";
    }

    /** A new worker. */
    static PythonWorker worker(WorkerCommand command) throws IOException {
        synchronized (RUNNING) {
            WorkerDaemon daemon = RUNNING.get(command);
            if (daemon != null && !daemon.process.isAlive()) {
                RUNNING.remove(command);
                daemon.end();
                daemon = null;
            }
            if (daemon == null) {
                daemon = new WorkerDaemon(command);
                RUNNING.put(command, daemon);
            }
            daemon.users++;
            daemon.started++;
            SocketChannel channel = null;
            try {
                channel = SocketChannel.open(daemon.address);
                return new PythonWorker(daemon, channel);
            } catch (IOException | RuntimeException error) {
                if (channel != null) {
                    channel.close();
                }
                daemon.released();
                throw error;
            }
        }
    }

    /** One worker less uses it; it ends a moment after the last one, unless another one starts. */
    void released() {
        synchronized (RUNNING) {
            if (--users > 0) {
                return;
            }
            int last = started;
            Thread ending = new Thread(() -> endUnlessUsed(last), "fermion-worker-daemon-end");
            ending.setDaemon(true);
            ending.start();
        }
    }

    private void endUnlessUsed(int last) {
        try {
            Thread.sleep(IDLE_MILLIS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        synchronized (RUNNING) {
            if (started == last) {
                RUNNING.remove(command, this);
                end();
            }
        }
    }

    private void end() {
        try {
            process.getOutputStream().close();
            if (!process.waitFor(END_SECONDS_MAX, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        } catch (IOException error) {
            process.destroyForcibly();
        } finally {
            removeFolder();
        }
    }

    /** What is left of its folder if it was killed. */
    private void removeFolder() {
        File folder = address == null ? null : address.getPath().getParent().toFile();
        File[] files = folder == null ? null : folder.listFiles();
        if (files != null) {
            for (File file : files) {
                file.delete();
            }
            folder.delete();
        }
    }

    /** The end of a log. */
    static String logged(Path log) {
        File file = log.toFile();
        try (var in = Files.newInputStream(log)) {
            in.skipNBytes(Math.max(0, file.length() - LOG_BYTES_MAX));
            return new String(in.readAllBytes(), StandardCharsets.UTF_8).strip();
        } catch (IOException error) {
            return "(no log: " + error.getMessage() + ")";
        }
    }
}
