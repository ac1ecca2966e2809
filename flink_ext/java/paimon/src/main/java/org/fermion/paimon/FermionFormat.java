package org.fermion.paimon;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.paimon.format.FileFormat;
import org.apache.paimon.format.FormatReaderFactory;
import org.apache.paimon.format.FormatWriterFactory;
import org.apache.paimon.format.SimpleColStats;
import org.apache.paimon.format.SimpleStatsExtractor;
import org.apache.paimon.fs.FileIO;
import org.apache.paimon.fs.Path;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.statistics.SimpleColStatsCollector;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.Pair;

/** Reads and writes files by workers, and tells Paimon the statistics of what it has written. */
final class FermionFormat extends FileFormat {
    private final WorkerPool workers;
    private final String profile;

    FermionFormat(Map<String, String> options) {
        super(FermionFormatFactory.IDENTIFIER);
        workers = WorkerPool.of(options);
        profile = options.get("file.profile");
    }

    @Override
    public void validateDataFields(RowType type) {
        PaimonRows.schema(type); // every type of Paimon has a counterpart; those of later versions have none
    }

    @Override
    public FormatReaderFactory createReaderFactory(RowType data, RowType projected, List<Predicate> filters) {
        JsonNode filter = Filters.toJson(filters);
        return context -> new FermionReader(workers, context, projected, filter);
    }

    @Override
    public FormatWriterFactory createWriterFactory(RowType type) {
        return (out, compression) -> new FermionWriter(workers, out, type, profile);
    }

    @Override
    public Optional<SimpleStatsExtractor> createStatsExtractor(
            RowType type, SimpleColStatsCollector.Factory[] collectors) {
        return Optional.of(new Statistics(type, collectors));
    }

    /** Statistics that a writer has got from its worker; of files that others wrote there are none. */
    private record Statistics(RowType type, SimpleColStatsCollector.Factory[] collectors)
            implements SimpleStatsExtractor {
        @Override
        public SimpleColStats[] extract(FileIO io, Path path, long length) {
            return extract(io, path, length, null);
        }

        @Override
        public SimpleColStats[] extract(FileIO io, Path path, long length, Object written) {
            List<SimpleColStats> statistics = new ArrayList<>();
            for (int column = 0; column < type.getFieldCount(); column++) {
                SimpleColStats known = SimpleColStats.NONE;
                if (written instanceof JsonNode columns && columns.has(column)) {
                    JsonNode values = columns.get(column);
                    known = new SimpleColStats(
                            Values.fromJson(values.get(0), type.getTypeAt(column)),
                            Values.fromJson(values.get(1), type.getTypeAt(column)),
                            values.get(2).asLong());
                }
                statistics.add(collectors[column].create().convert(known));
            }
            return statistics.toArray(new SimpleColStats[0]);
        }

        @Override
        public Pair<SimpleColStats[], FileInfo> extractWithFileInfo(FileIO io, Path path, long length) {
            throw new UnsupportedOperationException("Fermion files of others are not added to tables of Paimon");
        }
    }
}
