package org.fermion.flink;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.catalog.CatalogBaseTable;
import org.apache.flink.table.catalog.CatalogDatabase;
import org.apache.flink.table.catalog.CatalogDatabaseImpl;
import org.apache.flink.table.catalog.CatalogTable;
import org.apache.flink.table.catalog.Column;
import org.apache.flink.table.catalog.ObjectPath;
import org.apache.flink.table.catalog.ResolvedCatalogTable;
import org.apache.flink.table.catalog.TableChange;
import org.apache.flink.table.catalog.exceptions.CatalogException;
import org.apache.flink.table.catalog.exceptions.DatabaseAlreadyExistException;
import org.apache.flink.table.catalog.exceptions.DatabaseNotEmptyException;
import org.apache.flink.table.catalog.exceptions.DatabaseNotExistException;
import org.apache.flink.table.catalog.exceptions.TableAlreadyExistException;
import org.apache.flink.table.catalog.exceptions.TableNotExistException;
import org.apache.flink.table.factories.Factory;
import org.fermion.worker.PythonWorker;

/** The tables of a warehouse. Nothing ends a catalog that is not used any more, so it keeps no worker. */
public final class FermionCatalog extends PlainCatalog {
    private final Map<String, String> options;

    FermionCatalog(String name, Map<String, String> options) {
        super(name, options.getOrDefault(
                FermionOptions.DEFAULT_DATABASE.key(), FermionOptions.DEFAULT_DATABASE.defaultValue()));
        this.options = Map.copyOf(options);
    }

    private ObjectNode request(String operation) {
        ObjectNode request = PythonWorker.request(operation).put("warehouse", options.get(FermionOptions.WAREHOUSE.key()));
        request.set("storage_options", TableAccess.jsonObject(
                options.getOrDefault(FermionOptions.STORAGE_OPTIONS.key(), "{}")));
        return request;
    }

    private ObjectNode request(String operation, ObjectPath table) {
        return request(operation).put("namespace", table.getDatabaseName()).put("name", table.getObjectName());
    }

    private JsonNode ask(ObjectNode request) {
        try (PythonWorker worker = TableAccess.command(options).start()) {
            return worker.call(request);
        } catch (IOException error) {
            throw new CatalogException(error.getMessage(), error);
        }
    }

    private static List<String> texts(JsonNode names) {
        List<String> texts = new ArrayList<>();
        names.forEach(name -> texts.add(name.asText()));
        return texts;
    }

    @Override
    public void open() {
        ask(request("namespaces")); // a warehouse or a Python that can't be used is an error now
    }

    @Override
    public void close() {}

    @Override
    public Optional<Factory> getFactory() {
        return Optional.of(new FermionTableFactory(options));
    }

    @Override
    public List<String> listDatabases() {
        List<String> names = texts(ask(request("namespaces")).get("names"));
        if (!names.contains(getDefaultDatabase())) {
            names.add(0, getDefaultDatabase()); // the first table makes it
        }
        return names;
    }

    @Override
    public CatalogDatabase getDatabase(String name) throws DatabaseNotExistException {
        if (!databaseExists(name)) {
            throw new DatabaseNotExistException(getName(), name);
        }
        return new CatalogDatabaseImpl(new HashMap<>(), null);
    }

    @Override
    public boolean databaseExists(String name) {
        return listDatabases().contains(name);
    }

    @Override
    public void createDatabase(String name, CatalogDatabase database, boolean ignoreIfExists)
            throws DatabaseAlreadyExistException {
        if (texts(ask(request("namespaces")).get("names")).contains(name)) {
            if (!ignoreIfExists) {
                throw new DatabaseAlreadyExistException(getName(), name);
            }
            return;
        }
        if (!database.getProperties().isEmpty() || (database.getComment() != null && !database.getComment().isEmpty())) {
            throw new CatalogException("database " + name + ": namespaces have no properties and no comment");
        }
        ask(request("create_namespace").put("name", name));
    }

    @Override
    public void dropDatabase(String name, boolean ignoreIfNotExists, boolean cascade)
            throws DatabaseNotExistException, DatabaseNotEmptyException {
        if (!texts(ask(request("namespaces")).get("names")).contains(name)) {
            if (!ignoreIfNotExists) {
                throw new DatabaseNotExistException(getName(), name);
            }
            return;
        }
        if (!cascade && !texts(ask(request("tables").put("namespace", name)).get("names")).isEmpty()) {
            throw new DatabaseNotEmptyException(getName(), name);
        }
        ask(request("drop_namespace").put("name", name).put("cascade", cascade));
    }

    @Override
    public List<String> listTables(String database) throws DatabaseNotExistException {
        if (texts(ask(request("namespaces")).get("names")).contains(database)) {
            return texts(ask(request("tables").put("namespace", database)).get("names"));
        }
        if (!database.equals(getDefaultDatabase())) {
            throw new DatabaseNotExistException(getName(), database);
        }
        return new ArrayList<>();
    }

    @Override
    public CatalogBaseTable getTable(ObjectPath name) throws TableNotExistException {
        return table(name, ask(request("get_table", name)), null);
    }

    @Override
    public CatalogBaseTable getTable(ObjectPath name, long timestamp) throws TableNotExistException {
        return table(name, ask(request("get_table", name).put("timestamp_ms", timestamp)), timestamp);
    }

    private CatalogTable table(ObjectPath name, JsonNode described, Long timestamp) throws TableNotExistException {
        if (described.has("missing")) {
            throw new TableNotExistException(getName(), name);
        }
        Schema.Builder schema = Schema.newBuilder();
        described.get("columns").forEach(column -> {
            schema.column(column.get(0).asText(), column.get(1).asText());
            if (!column.get(2).asText().isEmpty()) {
                schema.withComment(column.get(2).asText());
            }
        });
        List<String> key = texts(described.get("primary_key"));
        if (!key.isEmpty()) {
            schema.primaryKey(key);
        }
        Map<String, String> table = new LinkedHashMap<>();
        described.get("properties").properties().forEach(each -> table.put(each.getKey(), each.getValue().asText()));
        String comment = table.remove("comment");
        // A temporary table that is LIKE this one finds it by these.
        table.put("connector", FermionOptions.IDENTIFIER);
        table.put(FermionOptions.PATH.key(), described.get("location").asText());
        if (options.containsKey(FermionOptions.PYTHON.key())) {
            table.put(FermionOptions.PYTHON.key(), options.get(FermionOptions.PYTHON.key()));
        }
        CatalogTable.Builder builder = CatalogTable.newBuilder().schema(schema.build()).comment(comment)
                .partitionKeys(texts(described.get("partition_by")));
        if (timestamp != null) {
            table.put(FermionOptions.TIMESTAMP.key(), Long.toString(timestamp));
            builder.snapshot(timestamp);
        }
        return builder.options(table).build();
    }

    @Override
    public boolean tableExists(ObjectPath name) {
        return !ask(request("get_table", name)).has("missing");
    }

    @Override
    public void createTable(ObjectPath name, CatalogBaseTable made, boolean ignoreIfExists)
            throws TableAlreadyExistException {
        if (tableExists(name)) {
            if (!ignoreIfExists) {
                throw new TableAlreadyExistException(getName(), name);
            }
            return;
        }
        if (!(made instanceof ResolvedCatalogTable table)) {
            throw new CatalogException(name.getFullName() + ": this catalog has tables only, no views");
        }
        ObjectNode request = request("create_table", name);
        ArrayNode columns = request.putArray("columns");
        for (Column column : table.getResolvedSchema().getColumns()) {
            checkPhysical(name, column);
            columns.addArray().add(column.getName())
                    .add(column.getDataType().getLogicalType().asSerializableString())
                    .add(column.getComment().orElse(""));
        }
        if (!table.getResolvedSchema().getWatermarkSpecs().isEmpty()) {
            throw new CatalogException(name.getFullName() + ": tables keep no WATERMARK. Use CREATE TEMPORARY TABLE t "
                    + "(WATERMARK FOR ...) LIKE " + name.getFullName());
        }
        ArrayNode key = request.putArray("primary_key");
        table.getResolvedSchema().getPrimaryKey().ifPresent(each -> each.getColumns().forEach(key::add));
        ArrayNode partitions = request.putArray("partition_by");
        table.getPartitionKeys().forEach(partitions::add);
        ObjectNode properties = request.putObject("properties");
        table.getOptions().forEach((option, value) -> {
            if (checkStored(option, value)) {
                properties.put(option, value);
            }
        });
        if (table.getComment() != null) {
            request.put("comment", table.getComment());
        }
        ask(request);
    }

    private static void checkPhysical(ObjectPath name, Column column) {
        if (!column.isPhysical()) {
            throw new CatalogException(name.getFullName() + ": column " + column.getName() + " is computed or metadata, "
                    + "which tables do not keep. Use CREATE TEMPORARY TABLE ... LIKE " + name.getFullName());
        }
    }

    /** Whether an option is a property of the table; those of statements are refused. */
    private static boolean checkStored(String option, String value) {
        if (option.equals("connector")) {
            if (!value.equals(FermionOptions.IDENTIFIER)) {
                throw new CatalogException("'connector' = '" + value + "': this catalog has Fermion tables; "
                        + "use CREATE TEMPORARY TABLE");
            }
            return false;
        }
        if (option.equals(FermionOptions.PYTHON.key())) {
            return false; // of a table that this one is LIKE; the catalog has its own
        }
        if (FermionOptions.OF_TABLES.stream().anyMatch(each -> each.key().equals(option))) {
            throw new CatalogException("'" + option + "' is not kept with a table: give it with the statement, as in "
                    + "SELECT * FROM t /*+ OPTIONS('" + option + "' = '" + value + "') */");
        }
        return true;
    }

    @Override
    public void dropTable(ObjectPath name, boolean ignoreIfNotExists) throws TableNotExistException {
        if (!tableExists(name)) {
            if (!ignoreIfNotExists) {
                throw new TableNotExistException(getName(), name);
            }
            return;
        }
        ask(request("drop_table", name));
    }

    @Override
    public void renameTable(ObjectPath name, String to, boolean ignoreIfNotExists)
            throws TableNotExistException, TableAlreadyExistException {
        if (!tableExists(name)) {
            if (!ignoreIfNotExists) {
                throw new TableNotExistException(getName(), name);
            }
            return;
        }
        ObjectPath target = new ObjectPath(name.getDatabaseName(), to);
        if (tableExists(target)) {
            throw new TableAlreadyExistException(getName(), target);
        }
        ask(request("rename_table", name).put("to", to));
    }

    @Override
    public void alterTable(ObjectPath name, CatalogBaseTable changed, boolean ignoreIfNotExists) {
        throw new CatalogException(name.getFullName() + ": a statement that does not say what it changes");
    }

    @Override
    public void alterTable(
            ObjectPath name, CatalogBaseTable changed, List<TableChange> changes, boolean ignoreIfNotExists)
            throws TableNotExistException {
        if (!tableExists(name)) {
            if (!ignoreIfNotExists) {
                throw new TableNotExistException(getName(), name);
            }
            return;
        }
        ObjectNode request = request("alter_table", name);
        ArrayNode listed = request.putArray("changes");
        changes.forEach(change -> add(listed, name, change));
        ask(request);
    }

    private static void add(ArrayNode changes, ObjectPath name, TableChange change) {
        if (change instanceof TableChange.AddColumn added) {
            checkPhysical(name, added.getColumn());
            ObjectNode node = of(changes, "add", added.getColumn()).put("comment", added.getColumn().getComment().orElse(""));
            node.put("type", type(added.getColumn()));
            place(node, added.getPosition(), true);
        } else if (change instanceof TableChange.DropColumn dropped) {
            changes.addObject().put("change", "drop").put("name", dropped.getColumnName());
        } else if (change instanceof TableChange.ModifyColumnName renamed) {
            of(changes, "rename", renamed.getOldColumn()).put("to", renamed.getNewColumnName());
        } else if (change instanceof TableChange.ModifyPhysicalColumnType modified) {
            of(changes, "type", modified.getOldColumn())
                    .put("type", modified.getNewType().getLogicalType().asSerializableString());
        } else if (change instanceof TableChange.ModifyColumnComment commented) {
            of(changes, "comment", commented.getOldColumn()).put("comment", commented.getNewComment());
        } else if (change instanceof TableChange.ModifyColumnPosition moved) {
            place(of(changes, "move", moved.getOldColumn()), moved.getNewPosition(), false);
        } else if (change instanceof TableChange.SetOption set) {
            if (checkStored(set.getKey(), set.getValue())) {
                changes.addObject().put("change", "set").put("key", set.getKey()).put("value", set.getValue());
            }
        } else if (change instanceof TableChange.ResetOption reset) {
            changes.addObject().put("change", "reset").put("key", reset.getKey());
        } else {
            throw new CatalogException("ALTER TABLE " + name.getFullName() + ": tables do not support "
                    + change.getClass().getSimpleName() + ": keys, distribution and watermarks are chosen by CREATE TABLE");
        }
    }

    private static ObjectNode of(ArrayNode changes, String kind, Column column) {
        return changes.addObject().put("change", kind).put("name", column.getName());
    }

    private static String type(Column column) {
        return column.getDataType().getLogicalType().asSerializableString();
    }

    private static void place(ObjectNode node, TableChange.ColumnPosition position, boolean saysFirst) {
        if (position instanceof TableChange.After after) {
            node.put("after", after.column());
        } else if (position != null && saysFirst) {
            node.put("first", true);
        }
    }
}
