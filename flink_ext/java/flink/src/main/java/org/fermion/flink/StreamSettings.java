package org.fermion.flink;

import java.io.IOException;
import java.io.Serializable;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.table.api.ValidationException;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.types.RowKind;

/**
 * How a table is followed.
 *
 * @param mode where it begins, as the request "begin" has it
 * @param consumer its name; null: none
 * @param deletes of append tables: fail, ignore or emit
 * @param pollMillis time between two looks for snapshots
 * @param isKeyed whether the table has a primary key
 * @param hasCheckpoints whether the job takes any
 */
record StreamSettings(
        String mode, String consumer, String deletes, long pollMillis, boolean isKeyed, boolean hasCheckpoints)
        implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final String FULL = "latest-full";
    private static final String LATEST = "latest";
    private static final String SINCE = "from-snapshot";
    private static final List<ConfigOption<?>> OF_STREAMS =
            List.of(FermionOptions.MODE, FermionOptions.CONSUMER, FermionOptions.DELETES);

    /** From the options of a table; null where only the rows of a snapshot are asked for. */
    static StreamSettings of(
            Map<String, String> options, TableAccess table, ScanVersion version, ReadableConfig configuration) {
        boolean isStreaming = configuration.get(ExecutionOptions.RUNTIME_MODE) == RuntimeExecutionMode.STREAMING;
        String mode = options.get(FermionOptions.MODE.key());
        if (!isStreaming) {
            for (ConfigOption<?> option : OF_STREAMS) {
                if (options.containsKey(option.key())) {
                    throw new ValidationException(
                            "'" + option.key() + "' is for streams: SET 'execution.runtime-mode' = 'streaming'");
                }
            }
            return null;
        }
        if (mode == null && !version.isLatest()) {
            return null; // one snapshot, as in batch mode
        }
        mode = oneOf(FermionOptions.MODE, mode == null ? FULL : mode, FULL, LATEST, SINCE);
        if (mode.equals(SINCE) && version.isLatest()) {
            throw new ValidationException("'scan.mode' = 'from-snapshot': say which one, with 'scan.snapshot-id', "
                    + "'scan.tag' or 'scan.timestamp'");
        }
        if (mode.equals(LATEST)) {
            version.refuse("'scan.mode' = 'latest'");
        }
        String deletes = options.getOrDefault(FermionOptions.DELETES.key(), "fail");
        oneOf(FermionOptions.DELETES, deletes, "fail", "ignore", "emit");
        Duration poll = Configuration.fromMap(options).get(FermionOptions.POLL_INTERVAL);
        return new StreamSettings(mode, options.get(FermionOptions.CONSUMER.key()), deletes,
                Math.max(1, poll.toMillis()), isKeyed(table),
                configuration.getOptional(CheckpointingOptions.CHECKPOINTING_INTERVAL).isPresent());
    }

    private static boolean isKeyed(TableAccess table) {
        try {
            return !table.ask(table.request("describe")).get("primary_key").isEmpty();
        } catch (IOException error) {
            throw new ValidationException(table.path() + ": " + error.getMessage(), error);
        }
    }

    private static String oneOf(ConfigOption<String> option, String value, String... known) {
        if (!List.of(known).contains(value)) {
            throw new ValidationException(
                    "'" + option.key() + "' = '" + value + "': expected one of " + List.of(known));
        }
        return value;
    }

    /** Which kinds of rows come. */
    ChangelogMode changelogMode() {
        if (isKeyed) {
            return ChangelogMode.all();
        }
        ChangelogMode.Builder kinds = ChangelogMode.newBuilder().addContainedKind(RowKind.INSERT);
        return deletes.equals("emit") ? kinds.addContainedKind(RowKind.DELETE).build() : kinds.build();
    }

    /** What of deletions goes into requests for changes. */
    String deletesToRead() {
        return isKeyed ? "emit" : deletes;
    }
}
