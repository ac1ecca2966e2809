package org.fermion.worker;

import java.io.IOException;
import java.io.Serializable;
import java.util.Map;

/**
 * How workers are started; part of serialized plans.
 *
 * @param python a Python that has Fermion installed, by path or by name
 * @param module the Python module whose function {@code serve} answers requests
 */
public record WorkerCommand(String python, String module) implements Serializable {
    /** The option of tables and catalogs that names the Python. */
    public static final String OPTION = "python.executable";
    /** The environment variable that names it where the option is missing. */
    public static final String VARIABLE = "FERMION_PYTHON";

    private static final long serialVersionUID = 1L;

    /** From the options of a table or catalog; without one, the environment's Python, or {@code python3}. */
    public static WorkerCommand of(Map<String, String> options, String module) {
        String python = options.get(OPTION);
        if (python == null) {
            python = System.getenv().getOrDefault(VARIABLE, "python3");
        }
        return new WorkerCommand(python, module);
    }

    /** Start a worker. */
    public PythonWorker start() throws IOException {
        return WorkerDaemon.worker(this);
    }

    /** For messages. */
    String line() {
        return python + " -m flink_ext.daemon " + module;
    }
}
