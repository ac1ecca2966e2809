package org.fermion.flink;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.table.data.RowData;

/** The rows of a snapshot, and then its changes. */
final class StreamSource
        implements Source<RowData, FermionSplit, StreamEnumerator.Position>, ResultTypeQueryable<RowData> {
    private static final long serialVersionUID = 1L;

    final TableAccess table;
    final String scan;
    final String version;
    final StreamSettings settings;
    private final int columns;
    private final TypeInformation<RowData> type;

    /**
     * A source.
     *
     * @param scan fields of all requests, a JSON object: columns and filters
     * @param version where it begins, a JSON object
     * @param columns how many columns rows have, beside their kind
     */
    StreamSource(TableAccess table, String scan, String version, StreamSettings settings, int columns,
            TypeInformation<RowData> type) {
        this.table = table;
        this.scan = scan;
        this.version = version;
        this.settings = settings;
        this.columns = columns;
        this.type = type;
    }

    @Override
    public TypeInformation<RowData> getProducedType() {
        return type;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<RowData, FermionSplit> createReader(SourceReaderContext context) {
        return new StreamReader(context, table, scan, columns);
    }

    @Override
    public SplitEnumerator<FermionSplit, StreamEnumerator.Position> createEnumerator(
            SplitEnumeratorContext<FermionSplit> context) {
        return new StreamEnumerator(context, this, null);
    }

    @Override
    public SplitEnumerator<FermionSplit, StreamEnumerator.Position> restoreEnumerator(
            SplitEnumeratorContext<FermionSplit> context, StreamEnumerator.Position position) {
        return new StreamEnumerator(context, this, position);
    }

    @Override
    public SimpleVersionedSerializer<FermionSplit> getSplitSerializer() {
        return new FermionSplit.Serializer();
    }

    @Override
    public SimpleVersionedSerializer<StreamEnumerator.Position> getEnumeratorCheckpointSerializer() {
        return new StreamEnumerator.Serializer();
    }
}
