package org.fermion.flink;

import java.time.Duration;
import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.fermion.worker.WorkerCommand;

/** The options of tables and catalogs. */
final class FermionOptions {
    static final String IDENTIFIER = "fermion";

    static final ConfigOption<String> WAREHOUSE = text("warehouse", "The directory or URL of the catalog's tables.");
    static final ConfigOption<String> DEFAULT_DATABASE = ConfigOptions.key("default-database")
            .stringType().defaultValue("default").withDescription("The database of names without one.");
    static final ConfigOption<String> STORAGE_OPTIONS = text("storage-options", "A JSON object for fsspec.");
    static final ConfigOption<String> PYTHON =
            text(WorkerCommand.OPTION, "A Python that has Fermion installed, by path or by name.");

    static final ConfigOption<String> PATH = text("path", "Where the table lies: a local path or a URL.");
    static final ConfigOption<String> BRANCH = ConfigOptions.key("branch")
            .stringType().defaultValue("main").withDescription("The branch that is read or written.");
    static final ConfigOption<Long> SNAPSHOT_ID = ConfigOptions.key("scan.snapshot-id")
            .longType().noDefaultValue().withDescription("Read this snapshot.");
    static final ConfigOption<String> TAG = text("scan.tag", "Read the snapshot of this tag.");
    static final ConfigOption<String> TIMESTAMP =
            text("scan.timestamp", "Read the latest snapshot of this time: ISO text, or milliseconds since 1970.");
    static final ConfigOption<String> MODE = ConfigOptions.key("scan.mode").stringType().noDefaultValue()
            .withDescription("Of streams: latest-full (the rows of a snapshot, then what changes), latest (what changes "
                    + "from now on), from-snapshot (what has changed since the snapshot that is named).");
    static final ConfigOption<Duration> POLL_INTERVAL = ConfigOptions.key("scan.poll-interval")
            .durationType().defaultValue(Duration.ofSeconds(1)).withDescription("How often streams look for snapshots.");
    static final ConfigOption<String> DELETES = text("scan.deletes",
            "What streams of append tables do where rows were deleted: fail (unless told otherwise), ignore, emit.");
    static final ConfigOption<String> CONSUMER =
            text("consumer-id", "A name under which a stream keeps what it has yet to read from expiring.");
    static final ConfigOption<String> COMMIT_USER =
            text("sink.commit-user", "Who commits; without it a new identity for each job.");

    /** What a statement may say of a table, beside its properties. */
    static final Set<ConfigOption<?>> OF_TABLES =
            Set.of(PYTHON, STORAGE_OPTIONS, BRANCH, SNAPSHOT_ID, TAG, TIMESTAMP, MODE, POLL_INTERVAL, DELETES, CONSUMER,
                    COMMIT_USER);

    private FermionOptions() {}

    private static ConfigOption<String> text(String key, String description) {
        return ConfigOptions.key(key).stringType().noDefaultValue().withDescription(description);
    }
}
