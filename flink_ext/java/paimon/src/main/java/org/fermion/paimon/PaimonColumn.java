package org.fermion.paimon;

import java.util.List;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.InternalVector;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.data.columnar.ArrayColumnVector;
import org.apache.paimon.data.columnar.BooleanColumnVector;
import org.apache.paimon.data.columnar.ByteColumnVector;
import org.apache.paimon.data.columnar.BytesColumnVector;
import org.apache.paimon.data.columnar.ColumnVector;
import org.apache.paimon.data.columnar.ColumnarArray;
import org.apache.paimon.data.columnar.ColumnarMap;
import org.apache.paimon.data.columnar.ColumnarRow;
import org.apache.paimon.data.columnar.ColumnarVec;
import org.apache.paimon.data.columnar.DecimalColumnVector;
import org.apache.paimon.data.columnar.DoubleColumnVector;
import org.apache.paimon.data.columnar.FloatColumnVector;
import org.apache.paimon.data.columnar.IntColumnVector;
import org.apache.paimon.data.columnar.LongColumnVector;
import org.apache.paimon.data.columnar.MapColumnVector;
import org.apache.paimon.data.columnar.RowColumnVector;
import org.apache.paimon.data.columnar.ShortColumnVector;
import org.apache.paimon.data.columnar.TimestampColumnVector;
import org.apache.paimon.data.columnar.VecColumnVector;
import org.apache.paimon.data.columnar.VectorizedColumnBatch;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.VectorType;
import org.fermion.arrow.ArrowColumn;

/** A vector as a column of Paimon, of any type. */
class PaimonColumn extends ArrowColumn
        implements ArrayColumnVector, BooleanColumnVector, ByteColumnVector, BytesColumnVector, DecimalColumnVector,
                DoubleColumnVector, FloatColumnVector, IntColumnVector, LongColumnVector, MapColumnVector,
                RowColumnVector, ShortColumnVector, TimestampColumnVector {
    private final VectorizedColumnBatch children;

    /** A column; without a vector, which the file does not have, it has nulls. */
    private PaimonColumn(FieldVector vector, DataType type) {
        super(vector);
        children = of(vector == null ? List.of() : children(vector), PaimonRows.fields(type),
                vector instanceof StructVector);
    }

    /** Columns of fields, by their names or by their places. */
    static VectorizedColumnBatch of(List<FieldVector> vectors, List<DataField> fields, boolean byName) {
        PaimonColumn[] columns = new PaimonColumn[fields.size()];
        for (int at = 0; at < columns.length; at++) {
            DataField field = fields.get(at);
            FieldVector found = byName || vectors.isEmpty()
                    ? vectors.stream().filter(each -> each.getName().equals(field.name())).findFirst().orElse(null)
                    : vectors.get(at);
            columns[at] = field.type() instanceof VectorType
                    ? new VectorColumn(found, field.type()) : new PaimonColumn(found, field.type());
        }
        return new VectorizedColumnBatch(columns);
    }

    @Override
    public Bytes getBytes(int at) {
        byte[] bytes = bytes(at);
        return new Bytes(bytes, 0, bytes.length);
    }

    @Override
    public Decimal getDecimal(int at, int precision, int scale) {
        return Decimal.isCompact(precision)
                ? Decimal.fromUnscaledLong(unscaled(at), precision, scale)
                : Decimal.fromBigDecimal(decimal(at), precision, scale);
    }

    @Override
    public Timestamp getTimestamp(int at, int precision) {
        return Timestamp.fromEpochMillis(millis(at), nanos(at));
    }

    @Override
    public InternalArray getArray(int at) {
        return new ColumnarArray(getColumnVector(), start(at), size(at));
    }

    @Override
    public InternalMap getMap(int at) {
        return new ColumnarMap(getColumnVector(), children.columns[1], start(at), size(at));
    }

    @Override
    public InternalRow getRow(int at) {
        return new ColumnarRow(children, at);
    }

    @Override
    public VectorizedColumnBatch getBatch() {
        return children;
    }

    @Override
    public ColumnVector getColumnVector() {
        return children.columns[0];
    }

    @Override
    public ColumnVector[] getChildren() {
        return children.columns;
    }

    /** Vectors of Paimon: it takes a column that has them for one of nothing else. */
    private static final class VectorColumn extends PaimonColumn implements VecColumnVector {
        VectorColumn(FieldVector vector, DataType type) {
            super(vector, type);
        }

        @Override
        public InternalVector getVector(int at) {
            return ColumnarVec.DEFAULT_FACTORY.create(getColumnVector(), start(at), size(at));
        }

        @Override
        public int getVectorSize() {
            return isNullAt(0) ? 0 : size(0);
        }
    }
}
