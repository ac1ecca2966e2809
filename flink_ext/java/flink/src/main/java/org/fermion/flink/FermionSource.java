package org.fermion.flink;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.table.data.RowData;

/** The rows of one snapshot. */
final class FermionSource extends TableSource<ScanEnumerator.Waiting> {
    private static final long serialVersionUID = 1L;

    FermionSource(Scan scan, TypeInformation<RowData> type) {
        super(scan, type);
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.BOUNDED;
    }

    @Override
    public SourceReader<RowData, FermionSplit> createReader(SourceReaderContext context) {
        return new ScanReader(context, scan);
    }

    @Override
    SplitEnumerator<FermionSplit, ScanEnumerator.Waiting> enumerator(
            SplitEnumeratorContext<FermionSplit> context, ScanEnumerator.Waiting waiting) {
        return new ScanEnumerator(context, scan, waiting);
    }

    @Override
    public SimpleVersionedSerializer<ScanEnumerator.Waiting> getEnumeratorCheckpointSerializer() {
        return new State<>(ScanEnumerator::write, ScanEnumerator::read);
    }
}
