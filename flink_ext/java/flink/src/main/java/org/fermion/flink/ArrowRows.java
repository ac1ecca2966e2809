package org.fermion.flink;

import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
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
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.MapData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.types.logical.ArrayType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.MapType;
import org.apache.flink.table.types.logical.RowType;

/** Rows of Flink as one batch of Arrow, of which each is used once. {@link ArrowColumns} reads. */
final class ArrowRows implements AutoCloseable {
    private static final int SECOND_MILLIS = 1000;

    private final VectorSchemaRoot root;
    private final RowData.FieldGetter[] getters;
    private final Target[] targets;
    private final TinyIntVector kinds;
    private int rows;

    /**
     * A batch without rows.
     *
     * @param schema the columns of the rows, and after them, if there is one more, their kinds
     */
    ArrowRows(Schema schema, RowType type, BufferAllocator memory) {
        root = VectorSchemaRoot.create(schema, memory);
        int count = type.getFieldCount();
        getters = new RowData.FieldGetter[count];
        targets = new Target[count];
        for (int at = 0; at < count; at++) {
            getters[at] = RowData.createFieldGetter(type.getTypeAt(at), at);
            targets[at] = target(root.getVector(at), type.getTypeAt(at));
        }
        kinds = root.getFieldVectors().size() > count ? (TinyIntVector) root.getVector(count) : null;
    }

    void add(RowData row) {
        for (int at = 0; at < targets.length; at++) {
            targets[at].put(rows, getters[at].getFieldOrNull(row));
        }
        if (kinds != null) {
            kinds.setSafe(rows, row.getRowKind().toByteValue());
        }
        rows++;
    }

    int rows() {
        return rows;
    }

    /** The batch, to be sent. */
    VectorSchemaRoot finished() {
        root.setRowCount(rows);
        return root;
    }

    @Override
    public void close() {
        root.close();
    }

    /** Stores a value of a row in a vector. */
    private record Target(FieldVector vector, Setter setter) {
        void put(int at, Object value) {
            if (value == null) {
                vector.setNull(at);
            } else {
                setter.set(at, value);
            }
        }
    }

    /** Stores a value that is not null. */
    private interface Setter {
        void set(int at, Object value);
    }

    private static Target target(FieldVector vector, LogicalType type) {
        return new Target(vector, setter(vector, type));
    }

    private static Setter setter(FieldVector vector, LogicalType type) {
        if (vector instanceof BigIntVector longs) {
            return (at, value) -> longs.setSafe(at, (Long) value);
        } else if (vector instanceof IntVector ints) {
            return (at, value) -> ints.setSafe(at, (Integer) value);
        } else if (vector instanceof Float8Vector doubles) {
            return (at, value) -> doubles.setSafe(at, (Double) value);
        } else if (vector instanceof VarCharVector texts) {
            return (at, value) -> texts.setSafe(at, ((StringData) value).toBytes());
        } else if (vector instanceof TimeStampVector times) {
            TimeUnit unit = ((ArrowType.Timestamp) times.getField().getType()).getUnit();
            return (at, value) -> times.setSafe(at, ticks((TimestampData) value, unit));
        } else if (vector instanceof DecimalVector decimals) {
            return (at, value) -> setDecimal(decimals, at, (DecimalData) value);
        } else if (vector instanceof DateDayVector days) {
            return (at, value) -> days.setSafe(at, (Integer) value);
        } else if (vector instanceof BitVector bits) {
            return (at, value) -> bits.setSafe(at, (Boolean) value ? 1 : 0);
        } else if (vector instanceof TinyIntVector bytes) {
            return (at, value) -> bytes.setSafe(at, (Byte) value);
        } else if (vector instanceof SmallIntVector shorts) {
            return (at, value) -> shorts.setSafe(at, (Short) value);
        } else if (vector instanceof Float4Vector floats) {
            return (at, value) -> floats.setSafe(at, (Float) value);
        } else if (vector instanceof VarBinaryVector bytes) {
            return (at, value) -> bytes.setSafe(at, (byte[]) value);
        } else if (vector instanceof FixedSizeBinaryVector bytes) {
            return (at, value) -> setFixed(bytes, at, (byte[]) value);
        } else if (vector instanceof TimeSecVector seconds) {
            return (at, value) -> seconds.setSafe(at, (Integer) value / SECOND_MILLIS);
        } else if (vector instanceof TimeMilliVector millis) {
            return (at, value) -> millis.setSafe(at, (Integer) value);
        } else if (vector instanceof DurationVector millis) {
            return (at, value) -> millis.setSafe(at, (Long) value);
        } else if (vector instanceof MapVector maps) { // before lists, which maps are too
            return mapSetter(maps, (MapType) type);
        } else if (vector instanceof ListVector lists) {
            return listSetter(lists, ((ArrayType) type).getElementType());
        } else if (vector instanceof StructVector structs) {
            return structSetter(structs, (RowType) type);
        }
        throw new IllegalStateException("column " + vector.getName() + ": rows do not travel as "
                + vector.getField().getType());
    }

    private static Setter listSetter(ListVector lists, LogicalType type) {
        Target elements = target(lists.getDataVector(), type);
        ArrayData.ElementGetter getter = ArrayData.createElementGetter(type);
        return (at, value) -> {
            ArrayData array = (ArrayData) value;
            int start = lists.startNewValue(at);
            for (int place = 0; place < array.size(); place++) {
                elements.put(start + place, getter.getElementOrNull(array, place));
            }
            lists.endValue(at, array.size());
        };
    }

    private static Setter mapSetter(MapVector maps, MapType type) {
        StructVector entries = (StructVector) maps.getDataVector();
        List<FieldVector> children = entries.getChildrenFromFields();
        Target keys = target(children.get(0), type.getKeyType());
        Target values = target(children.get(1), type.getValueType());
        ArrayData.ElementGetter keyGetter = ArrayData.createElementGetter(type.getKeyType());
        ArrayData.ElementGetter valueGetter = ArrayData.createElementGetter(type.getValueType());
        return (at, value) -> {
            MapData map = (MapData) value;
            ArrayData keyArray = map.keyArray();
            ArrayData valueArray = map.valueArray();
            int start = maps.startNewValue(at);
            for (int place = 0; place < map.size(); place++) {
                Object key = keyGetter.getElementOrNull(keyArray, place);
                if (key == null) {
                    throw new IllegalArgumentException(
                            "column " + maps.getName() + ": a map has the key null, which tables do not have");
                }
                entries.setIndexDefined(start + place);
                keys.put(start + place, key);
                values.put(start + place, valueGetter.getElementOrNull(valueArray, place));
            }
            maps.endValue(at, map.size());
        };
    }

    private static Setter structSetter(StructVector structs, RowType type) {
        List<Target> fields = new ArrayList<>();
        List<RowData.FieldGetter> fieldGetters = new ArrayList<>();
        for (int field = 0; field < type.getFieldCount(); field++) {
            fields.add(target(structs.getChildrenFromFields().get(field), type.getTypeAt(field)));
            fieldGetters.add(RowData.createFieldGetter(type.getTypeAt(field), field));
        }
        return (at, value) -> {
            structs.setIndexDefined(at);
            for (int field = 0; field < fields.size(); field++) {
                fields.get(field).put(at, fieldGetters.get(field).getFieldOrNull((RowData) value));
            }
        };
    }

    private static long ticks(TimestampData time, TimeUnit unit) {
        long millis = time.getMillisecond();
        return switch (unit) {
            case SECOND -> Math.floorDiv(millis, SECOND_MILLIS);
            case MILLISECOND -> millis;
            case MICROSECOND -> Math.addExact(
                    Math.multiplyExact(millis, 1_000L), time.getNanoOfMillisecond() / 1_000);
            case NANOSECOND -> nanos(time);
        };
    }

    private static long nanos(TimestampData time) {
        try {
            return Math.addExact(
                    Math.multiplyExact(time.getMillisecond(), 1_000_000L), time.getNanoOfMillisecond());
        } catch (ArithmeticException error) {
            throw new IllegalArgumentException("time " + time + ": nanoseconds reach from 1677 to 2262 only; "
                    + "use a column of fewer digits, as TIMESTAMP(6)", error);
        }
    }

    private static void setDecimal(DecimalVector decimals, int at, DecimalData value) {
        if (value.isCompact()) {
            decimals.setSafe(at, value.toUnscaledLong());
        } else {
            decimals.setSafe(at, value.toBigDecimal());
        }
    }

    private static void setFixed(FixedSizeBinaryVector bytes, int at, byte[] value) {
        if (value.length != bytes.getByteWidth()) {
            throw new IllegalArgumentException("column " + bytes.getName() + ": expected "
                    + bytes.getByteWidth() + " bytes, found " + value.length);
        }
        bytes.setSafe(at, value);
    }
}
