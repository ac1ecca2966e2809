package org.fermion.worker;

import java.io.IOException;

/** A worker's refusal of a request, which leaves it usable, or its end. */
public final class WorkerException extends IOException {
    private static final long serialVersionUID = 1L;
    /** The class of the error in Python; empty: the worker has ended. */
    private final String kind;

    WorkerException(String kind, String message) {
        super(message);
        this.kind = kind;
    }

    /** The class of the error in Python, as in {@code TableNotFound}; empty: the worker has ended. */
    public String kind() {
        return kind;
    }
}
