package org.fermion.flink;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.Serializable;
import java.util.Map;
import org.apache.flink.table.api.ValidationException;
import org.apache.flink.table.types.logical.RowType;
import org.fermion.worker.PythonWorker;
import org.fermion.worker.WorkerCommand;

/**
 * Where a table is, and the Python that reads and writes it; part of serialized plans.
 *
 * @param command starts workers
 * @param path a local path or a URL
 * @param storageOptions a JSON object
 * @param branch of the table
 */
record TableAccess(WorkerCommand command, String path, String storageOptions, String branch) implements Serializable {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final long serialVersionUID = 1L;

    /** From the options of a table, checked. */
    static TableAccess of(Map<String, String> options) {
        String storage = options.getOrDefault(FermionOptions.STORAGE_OPTIONS.key(), "{}");
        jsonObject(storage);
        return new TableAccess(command(options), options.get(FermionOptions.PATH.key()), storage,
                options.getOrDefault(FermionOptions.BRANCH.key(), FermionOptions.BRANCH.defaultValue()));
    }

    /** How the workers of the options start. */
    static WorkerCommand command(Map<String, String> options) {
        return WorkerCommand.of(options, "flink_ext.worker");
    }

    /** The storage options, which are a JSON object. */
    static ObjectNode jsonObject(String text) {
        JsonNode value;
        try {
            value = JSON.readTree(text);
        } catch (JsonProcessingException error) {
            value = null;
        }
        if (value instanceof ObjectNode object) {
            return object;
        }
        // Not the text itself: it may hold a password.
        throw new ValidationException("'" + FermionOptions.STORAGE_OPTIONS.key()
                + "': expected a JSON object, as in '{\"key\": \"...\", \"secret\": \"...\"}'");
    }

    /** A request about the table. */
    ObjectNode request(String operation) {
        ObjectNode request = PythonWorker.request(operation).put("path", path).put("branch", branch);
        request.set("storage_options", jsonObject(storageOptions));
        return request;
    }

    /** Ask a worker of its own. */
    JsonNode ask(ObjectNode request) throws IOException {
        try (PythonWorker worker = command.start()) {
            return worker.call(request);
        }
    }

    /** Names and types of columns, for requests. */
    static ArrayNode columns(RowType rows) {
        ArrayNode columns = JSON.createArrayNode();
        rows.getFields().forEach(field -> columns.addArray()
                .add(field.getName()).add(field.getType().asSerializableString()));
        return columns;
    }
}
