package org.fermion.flink;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Serializable;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.table.data.RowData;

/**
 * What sources of a table have in common.
 *
 * @param <S> the state of their enumerators
 */
abstract class TableSource<S> implements Source<RowData, FermionSplit, S>, ResultTypeQueryable<RowData> {
    private static final long serialVersionUID = 1L;

    final Scan scan;
    private final TypeInformation<RowData> type;

    TableSource(Scan scan, TypeInformation<RowData> type) {
        this.scan = scan;
        this.type = type;
    }

    /**
     * What is read.
     *
     * @param fields of all requests, a JSON object: columns, filters, limit, aggregates
     * @param version which snapshot, or where a stream begins, a JSON object
     * @param columns how many columns rows have, beside their kind
     */
    record Scan(TableAccess table, String fields, String version, int columns) implements Serializable {
        private static final long serialVersionUID = 1L;

        /** A request about it. */
        ObjectNode request(String operation) {
            ObjectNode request = table.request(operation);
            return request.setAll(TableAccess.jsonObject(fields));
        }
    }

    /** An enumerator; the state is null where none is restored. */
    abstract SplitEnumerator<FermionSplit, S> enumerator(SplitEnumeratorContext<FermionSplit> context, S state);

    @Override
    public TypeInformation<RowData> getProducedType() {
        return type;
    }

    @Override
    public SplitEnumerator<FermionSplit, S> createEnumerator(SplitEnumeratorContext<FermionSplit> context) {
        return enumerator(context, null);
    }

    @Override
    public SplitEnumerator<FermionSplit, S> restoreEnumerator(SplitEnumeratorContext<FermionSplit> context, S state) {
        return enumerator(context, state);
    }

    @Override
    public SimpleVersionedSerializer<FermionSplit> getSplitSerializer() {
        return new State<>(FermionSplit::write, FermionSplit::read);
    }
}
