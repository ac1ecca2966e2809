package org.fermion.flink;

import java.util.List;
import org.apache.arrow.vector.FieldVector;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.MapData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.data.columnar.ColumnarArrayData;
import org.apache.flink.table.data.columnar.ColumnarMapData;
import org.apache.flink.table.data.columnar.ColumnarRowData;
import org.apache.flink.table.data.columnar.vector.ArrayColumnVector;
import org.apache.flink.table.data.columnar.vector.BooleanColumnVector;
import org.apache.flink.table.data.columnar.vector.ByteColumnVector;
import org.apache.flink.table.data.columnar.vector.BytesColumnVector;
import org.apache.flink.table.data.columnar.vector.DecimalColumnVector;
import org.apache.flink.table.data.columnar.vector.DoubleColumnVector;
import org.apache.flink.table.data.columnar.vector.FloatColumnVector;
import org.apache.flink.table.data.columnar.vector.IntColumnVector;
import org.apache.flink.table.data.columnar.vector.LongColumnVector;
import org.apache.flink.table.data.columnar.vector.MapColumnVector;
import org.apache.flink.table.data.columnar.vector.RowColumnVector;
import org.apache.flink.table.data.columnar.vector.ShortColumnVector;
import org.apache.flink.table.data.columnar.vector.TimestampColumnVector;
import org.apache.flink.table.data.columnar.vector.VectorizedColumnBatch;
import org.fermion.arrow.ArrowColumn;

/** A vector as a column of Flink, of any type. Flink's own classes for this lose time zones and read maps wrongly. */
final class FlinkColumn extends ArrowColumn
        implements ArrayColumnVector, BooleanColumnVector, ByteColumnVector, BytesColumnVector, DecimalColumnVector,
                DoubleColumnVector, FloatColumnVector, IntColumnVector, LongColumnVector, MapColumnVector,
                RowColumnVector, ShortColumnVector, TimestampColumnVector {
    private final FlinkColumn[] children;

    private FlinkColumn(FieldVector vector) {
        super(vector);
        children = of(children(vector));
    }

    static FlinkColumn[] of(List<FieldVector> vectors) {
        return vectors.stream().map(FlinkColumn::new).toArray(FlinkColumn[]::new);
    }

    @Override
    public Bytes getBytes(int at) {
        byte[] bytes = bytes(at);
        return new Bytes(bytes, 0, bytes.length);
    }

    @Override
    public DecimalData getDecimal(int at, int precision, int scale) {
        return DecimalData.isCompact(precision)
                ? DecimalData.fromUnscaledLong(unscaled(at), precision, scale)
                : DecimalData.fromBigDecimal(decimal(at), precision, scale);
    }

    @Override
    public TimestampData getTimestamp(int at, int precision) {
        return TimestampData.fromEpochMillis(millis(at), nanos(at));
    }

    @Override
    public ArrayData getArray(int at) {
        return new ColumnarArrayData(children[0], start(at), size(at));
    }

    @Override
    public MapData getMap(int at) {
        return new ColumnarMapData(children[0], children[1], start(at), size(at));
    }

    @Override
    public ColumnarRowData getRow(int at) {
        return new ColumnarRowData(new VectorizedColumnBatch(children), at);
    }
}
