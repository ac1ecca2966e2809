package org.fermion.flink;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Serializable;
import java.util.Map;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.table.api.ValidationException;

/**
 * Which snapshot is read.
 *
 * @param json of the request "plan"; an empty object: the latest
 */
record ScanVersion(String json) implements Serializable {
    private static final long serialVersionUID = 1L;

    /** From the options of a table: one at most. */
    static ScanVersion of(Map<String, String> options) {
        ObjectNode version = TableAccess.JSON.createObjectNode();
        put(version, "tag", options, FermionOptions.TAG);
        String snapshot = options.get(FermionOptions.SNAPSHOT_ID.key());
        String timestamp = options.get(FermionOptions.TIMESTAMP.key());
        if (snapshot != null) {
            if (!snapshot.matches("[0-9]{1,18}")) {
                throw new ValidationException(
                        "'" + FermionOptions.SNAPSHOT_ID.key() + "' = '" + snapshot + "': expected the id of a snapshot");
            }
            version.put("snapshot_id", Long.parseLong(snapshot));
        }
        if (timestamp != null && timestamp.matches("-?[0-9]{5,18}")) {
            version.put("timestamp", Long.parseLong(timestamp));
        } else {
            put(version, "timestamp", options, FermionOptions.TIMESTAMP);
        }
        if (version.size() > 1) {
            throw new ValidationException("expected one of 'scan.snapshot-id', 'scan.tag', 'scan.timestamp' "
                    + "and FOR SYSTEM_TIME AS OF, found " + version);
        }
        return new ScanVersion(version.toString());
    }

    private static void put(ObjectNode version, String name, Map<String, String> options, ConfigOption<String> option) {
        if (options.containsKey(option.key())) {
            version.put(name, options.get(option.key()));
        }
    }

    boolean isLatest() {
        return json.equals("{}");
    }

    /** Refuse a version where there is none. */
    void refuse(String statement) {
        if (!isLatest()) {
            throw new ValidationException(statement + " goes to the latest snapshot: leave out " + json);
        }
    }
}
