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

/** The rows of one snapshot. */
final class FermionSource
        implements Source<RowData, FermionSplit, ScanEnumerator.Waiting>, ResultTypeQueryable<RowData> {
    private static final long serialVersionUID = 1L;

    private final TableAccess table;
    private final String scan;
    private final String version;
    private final int columns;
    private final TypeInformation<RowData> type;

    /**
     * A source.
     *
     * @param scan fields of the requests "plan" and "read", a JSON object: columns, filters, limit, aggregates
     * @param version which snapshot, a JSON object
     * @param columns how many columns rows have
     */
    FermionSource(TableAccess table, String scan, String version, int columns, TypeInformation<RowData> type) {
        this.table = table;
        this.scan = scan;
        this.version = version;
        this.columns = columns;
        this.type = type;
    }

    @Override
    public TypeInformation<RowData> getProducedType() {
        return type;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.BOUNDED;
    }

    @Override
    public SourceReader<RowData, FermionSplit> createReader(SourceReaderContext context) {
        return new ScanReader(context, table, scan, columns);
    }

    @Override
    public SplitEnumerator<FermionSplit, ScanEnumerator.Waiting> createEnumerator(
            SplitEnumeratorContext<FermionSplit> context) {
        return new ScanEnumerator(context, table, scan, version, null);
    }

    @Override
    public SplitEnumerator<FermionSplit, ScanEnumerator.Waiting> restoreEnumerator(
            SplitEnumeratorContext<FermionSplit> context, ScanEnumerator.Waiting waiting) {
        return new ScanEnumerator(context, table, scan, version, waiting);
    }

    @Override
    public SimpleVersionedSerializer<FermionSplit> getSplitSerializer() {
        return new FermionSplit.Serializer();
    }

    @Override
    public SimpleVersionedSerializer<ScanEnumerator.Waiting> getEnumeratorCheckpointSerializer() {
        return new ScanEnumerator.Serializer();
    }
}
