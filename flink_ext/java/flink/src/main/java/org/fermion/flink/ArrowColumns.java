package org.fermion.flink;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.DurationVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.FixedSizeBinaryVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.SmallIntVector;
import org.apache.arrow.vector.TimeMilliVector;
import org.apache.arrow.vector.TimeSecVector;
import org.apache.arrow.vector.TimeStampVector;
import org.apache.arrow.vector.TinyIntVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
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
import org.apache.flink.table.data.columnar.vector.ColumnVector;
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

/**
 * Vectors of Arrow as columns of Flink. {@link ArrowRows} is the other direction.
 *
 * <p>Flink's own classes for this lose time zones and read maps wrongly.
 */
final class ArrowColumns {
    private static final int SECOND_MILLIS = 1000;
    private static final int DECIMAL_BYTES = 16;

    private ArrowColumns() {}

    /** A column that reads a vector. */
    static ColumnVector of(FieldVector vector) {
        if (vector instanceof BigIntVector longs) {
            return new Longs(longs, longs::get);
        } else if (vector instanceof IntVector ints) {
            return new Ints(ints, ints::get);
        } else if (vector instanceof Float8Vector doubles) {
            return new Doubles(doubles);
        } else if (vector instanceof VarCharVector texts) {
            return new Bytes(texts, texts::get);
        } else if (vector instanceof TimeStampVector times) {
            return new Timestamps(times, ((ArrowType.Timestamp) times.getField().getType()).getUnit());
        } else if (vector instanceof DecimalVector decimals) {
            return new Decimals(decimals);
        } else if (vector instanceof DateDayVector days) {
            return new Ints(days, days::get);
        } else if (vector instanceof BitVector bits) {
            return new Booleans(bits);
        } else if (vector instanceof TinyIntVector bytes) {
            return new SmallBytes(bytes);
        } else if (vector instanceof SmallIntVector shorts) {
            return new Shorts(shorts);
        } else if (vector instanceof Float4Vector floats) {
            return new Floats(floats);
        } else if (vector instanceof VarBinaryVector bytes) {
            return new Bytes(bytes, bytes::get);
        } else if (vector instanceof FixedSizeBinaryVector bytes) {
            return new Bytes(bytes, bytes::get);
        } else if (vector instanceof TimeSecVector seconds) {
            return new Ints(seconds, at -> seconds.get(at) * SECOND_MILLIS);
        } else if (vector instanceof TimeMilliVector millis) {
            return new Ints(millis, millis::get);
        } else if (vector instanceof DurationVector millis) {
            return new Longs(millis, at -> DurationVector.get(millis.getDataBuffer(), at));
        } else if (vector instanceof MapVector maps) { // before lists, which maps are too
            return new Maps(maps);
        } else if (vector instanceof ListVector lists) {
            return new Lists(lists, of(lists.getDataVector()));
        } else if (vector instanceof StructVector structs) {
            return new Structs(structs, new VectorizedColumnBatch(ofAll(structs.getChildrenFromFields())));
        }
        throw new IllegalStateException("column " + vector.getName() + ": rows do not travel as "
                + vector.getField().getType());
    }

    static ColumnVector[] ofAll(List<FieldVector> vectors) {
        return vectors.stream().map(ArrowColumns::of).toArray(ColumnVector[]::new);
    }

    /** Reads an int of a row. */
    private interface IntAt {
        int get(int at);
    }

    /** Reads a long of a row. */
    private interface LongAt {
        long get(int at);
    }

    /** Reads bytes of a row. */
    private interface BytesAt {
        byte[] get(int at);
    }

    private record Ints(FieldVector vector, IntAt value) implements IntColumnVector {
        @Override
        public int getInt(int at) {
            return value.get(at);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Longs(FieldVector vector, LongAt value) implements LongColumnVector {
        @Override
        public long getLong(int at) {
            return value.get(at);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Bytes(FieldVector vector, BytesAt value) implements BytesColumnVector {
        @Override
        public Bytes getBytes(int at) {
            byte[] bytes = value.get(at);
            return new BytesColumnVector.Bytes(bytes, 0, bytes.length);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Doubles(Float8Vector vector) implements DoubleColumnVector {
        @Override
        public double getDouble(int at) {
            return vector.get(at);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Floats(Float4Vector vector) implements FloatColumnVector {
        @Override
        public float getFloat(int at) {
            return vector.get(at);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Booleans(BitVector vector) implements BooleanColumnVector {
        @Override
        public boolean getBoolean(int at) {
            return vector.get(at) != 0;
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record SmallBytes(TinyIntVector vector) implements ByteColumnVector {
        @Override
        public byte getByte(int at) {
            return vector.get(at);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Shorts(SmallIntVector vector) implements ShortColumnVector {
        @Override
        public short getShort(int at) {
            return vector.get(at);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Timestamps(TimeStampVector vector, TimeUnit unit) implements TimestampColumnVector {
        @Override
        public TimestampData getTimestamp(int at, int precision) {
            long ticks = vector.get(at);
            return switch (unit) {
                case SECOND -> TimestampData.fromEpochMillis(Math.multiplyExact(ticks, SECOND_MILLIS));
                case MILLISECOND -> TimestampData.fromEpochMillis(ticks);
                case MICROSECOND -> TimestampData.fromEpochMillis(
                        Math.floorDiv(ticks, 1_000L), (int) Math.floorMod(ticks, 1_000L) * 1_000);
                case NANOSECOND -> TimestampData.fromEpochMillis(
                        Math.floorDiv(ticks, 1_000_000L), (int) Math.floorMod(ticks, 1_000_000L));
            };
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Decimals(DecimalVector vector) implements DecimalColumnVector {
        @Override
        public DecimalData getDecimal(int at, int precision, int scale) {
            if (DecimalData.isCompact(precision)) { // the high half repeats the sign
                long unscaled = vector.getDataBuffer().getLong((long) at * DECIMAL_BYTES);
                return DecimalData.fromUnscaledLong(unscaled, precision, scale);
            }
            byte[] bytes = new byte[DECIMAL_BYTES];
            ArrowBuf buffer = vector.getDataBuffer();
            for (int place = 0; place < DECIMAL_BYTES; place++) {
                bytes[DECIMAL_BYTES - 1 - place] = buffer.getByte((long) at * DECIMAL_BYTES + place);
            }
            return DecimalData.fromBigDecimal(new BigDecimal(new BigInteger(bytes), scale), precision, scale);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Lists(ListVector vector, ColumnVector elements) implements ArrayColumnVector {
        @Override
        public ArrayData getArray(int at) {
            int start = vector.getElementStartIndex(at);
            return new ColumnarArrayData(elements, start, vector.getElementEndIndex(at) - start);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Maps(MapVector vector, ColumnVector keys, ColumnVector values) implements MapColumnVector {
        Maps(MapVector vector) {
            this(vector, entries(vector).get(0), entries(vector).get(1));
        }

        private static List<ColumnVector> entries(MapVector vector) {
            return List.of(ofAll(((StructVector) vector.getDataVector()).getChildrenFromFields()));
        }

        @Override
        public MapData getMap(int at) {
            int start = vector.getElementStartIndex(at);
            return new ColumnarMapData(keys, values, start, vector.getElementEndIndex(at) - start);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }

    private record Structs(StructVector vector, VectorizedColumnBatch children) implements RowColumnVector {
        @Override
        public ColumnarRowData getRow(int at) {
            return new ColumnarRowData(children, at);
        }

        @Override
        public boolean isNullAt(int at) {
            return vector.isNull(at);
        }
    }
}
