package org.fermion.paimon;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.fermion.worker.PythonWorker;
import org.fermion.worker.WorkerCommand;

/**
 * Workers that wait for the next file, as a worker takes one file after the other.
 *
 * <p>A worker that was not asked for some seconds ends, and with the last one the process that forks them.
 */
final class WorkerPool {
    private static final String MODULE = "flink_ext.paimon";
    private static final int IDLE_SECONDS_MAX = 10;
    private static final Map<WorkerCommand, WorkerPool> POOLS = new HashMap<>();
    private static final ScheduledExecutorService CLOCK = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "fermion-idle-workers");
        thread.setDaemon(true);
        return thread;
    });

    private record Idle(PythonWorker worker, long since) {}

    private final WorkerCommand command;
    private final Deque<Idle> idle = new ArrayDeque<>();

    private WorkerPool(WorkerCommand command) {
        this.command = command;
        CLOCK.scheduleWithFixedDelay(this::endIdle, 1, 1, TimeUnit.SECONDS);
    }

    /** The pool of the Python that the options of a table name. */
    static synchronized WorkerPool of(Map<String, String> options) {
        return POOLS.computeIfAbsent(WorkerCommand.of(options, MODULE), WorkerPool::new);
    }

    /** A worker for one file, until it is given back or closed. */
    PythonWorker take() throws IOException {
        while (true) {
            Idle waiting;
            synchronized (idle) {
                waiting = idle.pollLast();
            }
            if (waiting == null) {
                return command.start();
            }
            if (ProcessHandle.of(waiting.worker.pid()).map(ProcessHandle::isAlive).orElse(false)) {
                return waiting.worker;
            }
            waiting.worker.close();
        }
    }

    /** Take back a worker that has answered everything. */
    void giveBack(PythonWorker worker) {
        synchronized (idle) {
            idle.addLast(new Idle(worker, System.nanoTime()));
        }
    }

    private void endIdle() {
        while (true) {
            Idle oldest;
            synchronized (idle) {
                oldest = idle.peekFirst();
                if (oldest == null
                        || System.nanoTime() - oldest.since < TimeUnit.SECONDS.toNanos(IDLE_SECONDS_MAX)) {
                    return;
                }
                idle.removeFirst();
            }
            oldest.worker.close();
        }
    }
}
