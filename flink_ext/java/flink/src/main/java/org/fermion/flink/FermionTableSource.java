package org.fermion.flink;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.table.api.TableException;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.SourceProvider;
import org.apache.flink.table.connector.source.abilities.SupportsAggregatePushDown;
import org.apache.flink.table.connector.source.abilities.SupportsFilterPushDown;
import org.apache.flink.table.connector.source.abilities.SupportsLimitPushDown;
import org.apache.flink.table.connector.source.abilities.SupportsProjectionPushDown;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.expressions.AggregateExpression;
import org.apache.flink.table.expressions.ResolvedExpression;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.RowType;

/** SELECT from one snapshot, or from it and what changes later, with what Python can do of it pushed down. */
final class FermionTableSource implements ScanTableSource, SupportsProjectionPushDown, SupportsFilterPushDown,
        SupportsLimitPushDown, SupportsAggregatePushDown {
    /** Flink's functions have no common names; these are the ends of their classes'. */
    private static final Map<String, String> AGGREGATES =
            Map.of("Count1AggFunction", "count", "MinAggFunction", "min", "MaxAggFunction", "max");

    private final TableAccess table;
    private final ScanVersion version;
    private final StreamSettings stream;
    private final Integer parallelism;
    private final ObjectNode scan;
    private DataType type;

    /** A source; {@code stream} is null for the rows of one snapshot alone. */
    FermionTableSource(
            TableAccess table, ScanVersion version, StreamSettings stream, DataType type, Integer parallelism) {
        this(table, version, stream, type, parallelism, TableAccess.JSON.createObjectNode());
    }

    private FermionTableSource(TableAccess table, ScanVersion version, StreamSettings stream, DataType type,
            Integer parallelism, ObjectNode scan) {
        this.table = table;
        this.version = version;
        this.stream = stream;
        this.type = type;
        this.parallelism = parallelism;
        this.scan = scan;
    }

    private RowType rows() {
        return (RowType) type.getLogicalType();
    }

    private JsonNode ask(ObjectNode request) {
        try {
            return table.ask(request);
        } catch (IOException error) {
            throw new TableException(table.path() + ": " + error.getMessage(), error);
        }
    }

    @Override
    public ChangelogMode getChangelogMode() {
        return stream == null ? ChangelogMode.insertOnly() : stream.changelogMode();
    }

    @Override
    public boolean supportsNestedProjection() {
        return false;
    }

    @Override
    public void applyProjection(int[][] fields, DataType produced) {
        type = produced;
    }

    @Override
    public Result applyFilters(List<ResolvedExpression> filters) {
        ObjectNode request = table.request("filters");
        ArrayNode nodes = request.putArray("filters");
        filters.forEach(filter -> nodes.add(Predicates.json(filter)));
        JsonNode exact = ask(request).get("filters");
        List<ResolvedExpression> accepted = new ArrayList<>();
        List<ResolvedExpression> remaining = new ArrayList<>();
        ArrayNode pushed = scan.putArray("filters");
        for (int at = 0; at < filters.size(); at++) {
            if (exact.get(at).isNull()) {
                remaining.add(filters.get(at));
            } else {
                accepted.add(filters.get(at));
                pushed.add(nodes.get(at));
            }
        }
        return Result.of(accepted, remaining);
    }

    @Override
    public void applyLimit(long limit) {
        if (stream == null) {
            scan.put("limit", limit);
        }
    }

    @Override
    public boolean applyAggregates(
            List<int[]> groupingSets, List<AggregateExpression> aggregates, DataType produced) {
        if (stream != null || groupingSets.size() != 1 || groupingSets.get(0).length > 0) {
            return false;
        }
        ArrayNode functions = TableAccess.JSON.createArrayNode();
        for (AggregateExpression aggregate : aggregates) {
            String name = aggregate.getFunctionDefinition().getClass().getSimpleName();
            String kind = AGGREGATES.entrySet().stream().filter(each -> name.endsWith(each.getKey()))
                    .map(Map.Entry::getValue).findFirst().orElse(null);
            if (kind == null || aggregate.isDistinct() || aggregate.getFilterExpression().isPresent()) {
                return false;
            }
            ObjectNode function = functions.addObject().put("kind", kind);
            if (!aggregate.getArgs().isEmpty()) {
                function.put("column", aggregate.getArgs().get(0).getName());
            }
        }
        ObjectNode request = table.request("aggregates");
        request.setAll(scan);
        request.set("version", TableAccess.jsonObject(version.json()));
        request.set("columns", TableAccess.columns((RowType) produced.getLogicalType()));
        request.set("aggregates", functions);
        if (!ask(request).get("known").asBoolean()) {
            return false;
        }
        scan.set("aggregates", functions);
        type = produced;
        return true;
    }

    @Override
    public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
        scan.set("columns", TableAccess.columns(rows()));
        TypeInformation<RowData> produced = context.createTypeInformation(type);
        TableSource.Scan read =
                new TableSource.Scan(table, scan.toString(), version.json(), rows().getFieldCount());
        Source<RowData, FermionSplit, ?> source =
                stream == null ? new FermionSource(read, produced) : new StreamSource(read, stream, produced);
        return parallelism == null ? SourceProvider.of(source) : SourceProvider.of(source, parallelism);
    }

    @Override
    public DynamicTableSource copy() {
        return new FermionTableSource(table, version, stream, type, parallelism, scan.deepCopy());
    }

    @Override
    public String asSummaryString() {
        return "Fermion " + table.path();
    }
}
