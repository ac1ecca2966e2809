package org.fermion.paimon;

import java.math.BigDecimal;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.LargeVarBinaryVector;
import org.apache.arrow.vector.SmallIntVector;
import org.apache.arrow.vector.TimeMilliVector;
import org.apache.arrow.vector.TimeStampVector;
import org.apache.arrow.vector.TinyIntVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.FixedSizeListVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.types.DateUnit;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.BinaryVector;
import org.apache.paimon.data.Blob;
import org.apache.paimon.data.DataGetters;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericMap;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.data.variant.GenericVariant;
import org.apache.paimon.data.variant.Variant;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeChecks;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.MultisetType;
import org.apache.paimon.types.RowType;
import org.apache.paimon.types.VectorType;

/** Rows of Paimon in Arrow vectors, in both directions. Types are those that pypaimon uses. */
final class ArrowRows {
    /** The column with the position of each row in its file; not a column of the file. */
    static final String POSITION = "\u0000position";

    private final RowType type;
    private final FieldVector[] vectors;

    /** Columns that the root lacks are null. */
    ArrowRows(VectorSchemaRoot root, RowType type) {
        this.type = type;
        vectors = type.getFieldNames().stream().map(root::getVector).toArray(FieldVector[]::new);
    }

    /** Put a row at an index; the vectors grow. */
    void set(int at, InternalRow row) {
        for (int column = 0; column < vectors.length; column++) {
            write(vectors[column], at, row, column, type.getTypeAt(column));
        }
    }

    /** The row at an index; a copy. */
    InternalRow row(int at) {
        GenericRow row = new GenericRow(vectors.length);
        for (int column = 0; column < vectors.length; column++) {
            row.setField(column, vectors[column] == null ? null : read(vectors[column], at, type.getTypeAt(column)));
        }
        return row;
    }

    /** The columns of a row type. */
    static Schema schema(RowType type) {
        return new Schema(type.getFields().stream().map(each -> field(each.name(), each.type())).toList());
    }

    private static Field field(String name, DataType type) {
        List<Field> children = switch (type.getTypeRoot()) {
            case ARRAY -> List.of(field("item", ((ArrayType) type).getElementType()));
            case VECTOR -> List.of(field("item", ((VectorType) type).getElementType()));
            case MAP, MULTISET -> {
                Field key = field("key", keyType(type).notNull());
                Field value = field("value", valueType(type));
                yield List.of(new Field("entries", new FieldType(false, new ArrowType.Struct(), null), List.of(key, value)));
            }
            case ROW -> ((RowType) type).getFields().stream().map(each -> field(each.name(), each.type())).toList();
            case VARIANT -> List.of(
                    field(Variant.VALUE, DataTypes.BYTES().notNull()),
                    field(Variant.METADATA, DataTypes.BYTES().notNull()));
            default -> List.of();
        };
        return new Field(name, new FieldType(type.isNullable(), arrowType(type), null), children);
    }

    private static ArrowType arrowType(DataType type) {
        return switch (type.getTypeRoot()) {
            case BOOLEAN -> new ArrowType.Bool();
            case TINYINT -> new ArrowType.Int(8, true);
            case SMALLINT -> new ArrowType.Int(16, true);
            case INTEGER -> new ArrowType.Int(32, true);
            case BIGINT -> new ArrowType.Int(64, true);
            case FLOAT -> new ArrowType.FloatingPoint(FloatingPointPrecision.SINGLE);
            case DOUBLE -> new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE);
            case CHAR, VARCHAR -> new ArrowType.Utf8();
            case BINARY, VARBINARY -> new ArrowType.Binary();
            case BLOB -> new ArrowType.LargeBinary();
            case DECIMAL -> new ArrowType.Decimal(
                    ((DecimalType) type).getPrecision(), ((DecimalType) type).getScale(), 128);
            case DATE -> new ArrowType.Date(DateUnit.DAY);
            case TIME_WITHOUT_TIME_ZONE -> new ArrowType.Time(TimeUnit.MILLISECOND, 32);
            case TIMESTAMP_WITHOUT_TIME_ZONE -> new ArrowType.Timestamp(unit(type), null);
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE -> new ArrowType.Timestamp(unit(type), "UTC");
            case ARRAY -> new ArrowType.List();
            case VECTOR -> new ArrowType.FixedSizeList(((VectorType) type).getLength());
            case MAP, MULTISET -> new ArrowType.Map(false);
            case ROW, VARIANT -> new ArrowType.Struct();
            default -> throw new UnsupportedOperationException("the file format fermion has no type " + type);
        };
    }

    private static TimeUnit unit(DataType type) {
        int precision = DataTypeChecks.getPrecision(type);
        if (precision == 0) {
            return TimeUnit.SECOND;
        }
        return precision <= 3 ? TimeUnit.MILLISECOND : precision <= 6 ? TimeUnit.MICROSECOND : TimeUnit.NANOSECOND;
    }

    private static DataType keyType(DataType type) {
        return type instanceof MapType map ? map.getKeyType() : ((MultisetType) type).getElementType();
    }

    private static DataType valueType(DataType type) {
        return type instanceof MapType map ? map.getValueType() : DataTypes.INT().notNull();
    }

    private static void write(FieldVector vector, int at, DataGetters row, int column, DataType type) {
        if (row.isNullAt(column)) {
            writeNull(vector, at);
            return;
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN -> ((BitVector) vector).setSafe(at, row.getBoolean(column) ? 1 : 0);
            case TINYINT -> ((TinyIntVector) vector).setSafe(at, row.getByte(column));
            case SMALLINT -> ((SmallIntVector) vector).setSafe(at, row.getShort(column));
            case INTEGER -> ((IntVector) vector).setSafe(at, row.getInt(column));
            case BIGINT -> ((BigIntVector) vector).setSafe(at, row.getLong(column));
            case FLOAT -> ((Float4Vector) vector).setSafe(at, row.getFloat(column));
            case DOUBLE -> ((Float8Vector) vector).setSafe(at, row.getDouble(column));
            case CHAR, VARCHAR -> ((VarCharVector) vector).setSafe(at, row.getString(column).toBytes());
            case BINARY, VARBINARY -> ((VarBinaryVector) vector).setSafe(at, row.getBinary(column));
            case BLOB -> ((LargeVarBinaryVector) vector).setSafe(at, row.getBlob(column).toData());
            case DECIMAL -> {
                DecimalType decimal = (DecimalType) type;
                BigDecimal value = row.getDecimal(column, decimal.getPrecision(), decimal.getScale()).toBigDecimal();
                ((DecimalVector) vector).setSafe(at, value.setScale(decimal.getScale()));
            }
            case DATE -> ((DateDayVector) vector).setSafe(at, row.getInt(column));
            case TIME_WITHOUT_TIME_ZONE -> ((TimeMilliVector) vector).setSafe(at, row.getInt(column));
            case TIMESTAMP_WITHOUT_TIME_ZONE, TIMESTAMP_WITH_LOCAL_TIME_ZONE -> {
                Timestamp time = row.getTimestamp(column, DataTypeChecks.getPrecision(type));
                ((TimeStampVector) vector).setSafe(at, ticks(time, unit(type)));
            }
            case ARRAY -> writeItems((ListVector) vector, at, row.getArray(column), ((ArrayType) type).getElementType());
            case VECTOR -> {
                FixedSizeListVector list = (FixedSizeListVector) vector;
                InternalArray items = row.getVector(column);
                int start = list.startNewValue(at);
                for (int item = 0; item < items.size(); item++) {
                    write(list.getDataVector(), start + item, items, item, ((VectorType) type).getElementType());
                }
            }
            case MAP, MULTISET -> writeEntries((MapVector) vector, at, row.getMap(column), type);
            case ROW -> {
                RowType inner = (RowType) type;
                InternalRow value = row.getRow(column, inner.getFieldCount());
                StructVector struct = defined((StructVector) vector, at);
                for (int field = 0; field < inner.getFieldCount(); field++) {
                    write((FieldVector) struct.getChildByOrdinal(field), at, value, field, inner.getTypeAt(field));
                }
            }
            case VARIANT -> {
                Variant value = row.getVariant(column);
                StructVector struct = defined((StructVector) vector, at);
                ((VarBinaryVector) struct.getChild(Variant.VALUE)).setSafe(at, value.value());
                ((VarBinaryVector) struct.getChild(Variant.METADATA)).setSafe(at, value.metadata());
            }
            default -> throw new UnsupportedOperationException("the file format fermion has no type " + type);
        }
    }

    private static void writeNull(FieldVector vector, int at) {
        while (vector.getValueCapacity() <= at) {
            vector.reAlloc();
        }
        if (vector instanceof FixedSizeListVector list) {
            list.startNewValue(at); // its items need their place
        }
        vector.setNull(at);
    }

    private static StructVector defined(StructVector struct, int at) {
        while (struct.getValueCapacity() <= at) {
            struct.reAlloc();
        }
        struct.setIndexDefined(at);
        return struct;
    }

    private static void writeItems(ListVector list, int at, InternalArray items, DataType type) {
        int start = list.startNewValue(at);
        for (int item = 0; item < items.size(); item++) {
            write(list.getDataVector(), start + item, items, item, type);
        }
        list.endValue(at, items.size());
    }

    private static void writeEntries(MapVector map, int at, InternalMap entries, DataType type) {
        StructVector struct = (StructVector) map.getDataVector();
        int start = map.startNewValue(at);
        InternalArray keys = entries.keyArray();
        InternalArray values = entries.valueArray();
        for (int entry = 0; entry < entries.size(); entry++) {
            defined(struct, start + entry);
            write((FieldVector) struct.getChildByOrdinal(0), start + entry, keys, entry, keyType(type));
            write((FieldVector) struct.getChildByOrdinal(1), start + entry, values, entry, valueType(type));
        }
        map.endValue(at, entries.size());
    }

    private static long ticks(Timestamp time, TimeUnit unit) {
        long millis = time.getMillisecond();
        try {
            return switch (unit) {
                case SECOND -> Math.floorDiv(millis, 1000L);
                case MILLISECOND -> millis;
                case MICROSECOND -> Math.addExact(Math.multiplyExact(millis, 1000L), time.getNanoOfMillisecond() / 1000);
                case NANOSECOND -> Math.addExact(Math.multiplyExact(millis, 1_000_000L), time.getNanoOfMillisecond());
            };
        } catch (ArithmeticException error) {
            throw new IllegalArgumentException(
                    time + " is out of the range of 64 bits of unit " + unit + "; of nanoseconds: 1677 to 2262", error);
        }
    }

    private static Timestamp time(long ticks, TimeUnit unit) {
        return switch (unit) {
            case SECOND -> Timestamp.fromEpochMillis(ticks * 1000);
            case MILLISECOND -> Timestamp.fromEpochMillis(ticks);
            case MICROSECOND -> Timestamp.fromMicros(ticks);
            case NANOSECOND -> Timestamp.fromEpochMillis(
                    Math.floorDiv(ticks, 1_000_000L), (int) Math.floorMod(ticks, 1_000_000L));
        };
    }

    private static Object read(FieldVector vector, int at, DataType type) {
        if (vector.isNull(at)) {
            return null;
        }
        return switch (type.getTypeRoot()) {
            case BOOLEAN -> ((BitVector) vector).get(at) != 0;
            case TINYINT -> ((TinyIntVector) vector).get(at);
            case SMALLINT -> ((SmallIntVector) vector).get(at);
            case INTEGER -> ((IntVector) vector).get(at);
            case BIGINT -> ((BigIntVector) vector).get(at);
            case FLOAT -> ((Float4Vector) vector).get(at);
            case DOUBLE -> ((Float8Vector) vector).get(at);
            case CHAR, VARCHAR -> BinaryString.fromBytes(((VarCharVector) vector).get(at));
            case BINARY, VARBINARY -> ((VarBinaryVector) vector).get(at);
            case BLOB -> Blob.fromData(((LargeVarBinaryVector) vector).get(at));
            case DECIMAL -> {
                DecimalType decimal = (DecimalType) type;
                yield Decimal.fromBigDecimal(
                        ((DecimalVector) vector).getObject(at), decimal.getPrecision(), decimal.getScale());
            }
            case DATE -> ((DateDayVector) vector).get(at);
            case TIME_WITHOUT_TIME_ZONE -> ((TimeMilliVector) vector).get(at);
            case TIMESTAMP_WITHOUT_TIME_ZONE, TIMESTAMP_WITH_LOCAL_TIME_ZONE ->
                time(((TimeStampVector) vector).get(at), ((ArrowType.Timestamp) vector.getField().getType()).getUnit());
            case ARRAY -> {
                ListVector list = (ListVector) vector;
                yield new GenericArray(items(
                        list.getDataVector(),
                        list.getElementStartIndex(at),
                        list.getElementEndIndex(at),
                        ((ArrayType) type).getElementType()));
            }
            case VECTOR -> {
                FixedSizeListVector list = (FixedSizeListVector) vector;
                DataType item = ((VectorType) type).getElementType();
                Object[] items =
                        items(list.getDataVector(), list.getElementStartIndex(at), list.getElementEndIndex(at), item);
                yield BinaryVector.fromInternalArray(new GenericArray(items), item);
            }
            case MAP, MULTISET -> entries((MapVector) vector, at, type);
            case ROW -> {
                RowType inner = (RowType) type;
                StructVector struct = (StructVector) vector;
                GenericRow row = new GenericRow(inner.getFieldCount());
                for (int field = 0; field < inner.getFieldCount(); field++) {
                    DataField named = inner.getFields().get(field);
                    FieldVector child = (FieldVector) struct.getChild(named.name());
                    row.setField(field, child == null ? null : read(child, at, named.type()));
                }
                yield row;
            }
            case VARIANT -> {
                StructVector struct = (StructVector) vector;
                yield new GenericVariant(
                        ((VarBinaryVector) struct.getChild(Variant.VALUE)).get(at),
                        ((VarBinaryVector) struct.getChild(Variant.METADATA)).get(at));
            }
            default -> throw new UnsupportedOperationException("the file format fermion has no type " + type);
        };
    }

    private static Object[] items(FieldVector vector, int start, int stop, DataType type) {
        Object[] items = new Object[stop - start];
        for (int item = start; item < stop; item++) {
            items[item - start] = read(vector, item, type);
        }
        return items;
    }

    private static GenericMap entries(MapVector map, int at, DataType type) {
        StructVector struct = (StructVector) map.getDataVector();
        Map<Object, Object> entries = new LinkedHashMap<>();
        for (int entry = map.getElementStartIndex(at); entry < map.getElementEndIndex(at); entry++) {
            entries.put(
                    read((FieldVector) struct.getChildByOrdinal(0), entry, keyType(type)),
                    read((FieldVector) struct.getChildByOrdinal(1), entry, valueType(type)));
        }
        return new GenericMap(entries);
    }
}
