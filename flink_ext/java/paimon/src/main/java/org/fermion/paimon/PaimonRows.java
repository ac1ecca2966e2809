package org.fermion.paimon;

import java.util.List;
import java.util.function.Function;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.types.DateUnit;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Blob;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
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
import org.fermion.arrow.EngineRows;

/** How Paimon keeps values in its rows, and the Arrow types that these have: those that pypaimon uses. */
final class PaimonRows implements EngineRows<DataType> {
    /** The column with the position of each row in its file; not a column of the file. */
    static final String POSITION = "\u0000position";

    /** The columns of a row type. */
    static Schema schema(RowType type) {
        return new Schema(type.getFields().stream().map(each -> field(each.name(), each.type())).toList());
    }

    private static Field field(String name, DataType type) {
        List<Field> children = fields(type).stream().map(each -> field(each.name(), each.type())).toList();
        if (type instanceof MapType || type instanceof MultisetType) {
            children = List.of(new Field("entries", new FieldType(false, new ArrowType.Struct(), null), children));
        }
        return new Field(name, new FieldType(type.isNullable(), arrowType(type), null), children);
    }

    /** What a type consists of, in Arrow's names. */
    static List<DataField> fields(DataType type) {
        return switch (type.getTypeRoot()) {
            case ARRAY -> List.of(new DataField(0, "item", ((ArrayType) type).getElementType()));
            case VECTOR -> List.of(new DataField(0, "item", ((VectorType) type).getElementType()));
            case MAP -> entries(((MapType) type).getKeyType(), ((MapType) type).getValueType());
            case MULTISET -> entries(((MultisetType) type).getElementType(), DataTypes.INT().notNull());
            case ROW -> ((RowType) type).getFields();
            case VARIANT -> List.of(
                    new DataField(0, Variant.VALUE, DataTypes.BYTES().notNull()),
                    new DataField(1, Variant.METADATA, DataTypes.BYTES().notNull()));
            default -> List.of();
        };
    }

    private static List<DataField> entries(DataType key, DataType value) {
        return List.of(new DataField(0, "key", key.notNull()), new DataField(1, "value", value));
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

    @Override
    public List<DataType> children(DataType type) {
        return fields(type).stream().map(DataField::type).toList();
    }

    @Override
    public Function<Object, Object> field(DataType type, int at) {
        if (!(type instanceof RowType row)) {
            return at == 0 ? variant -> ((Variant) variant).value() : variant -> ((Variant) variant).metadata();
        }
        InternalRow.FieldGetter getter = InternalRow.createFieldGetter(row.getTypeAt(at), at);
        return value -> getter.getFieldOrNull((InternalRow) value);
    }

    @Override
    public Element element(DataType type) {
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(type);
        return (array, at) -> getter.getElementOrNull((InternalArray) array, at);
    }

    @Override
    public int size(Object items) {
        return items instanceof InternalMap map ? map.size() : ((InternalArray) items).size();
    }

    @Override
    public Object keys(Object map) {
        return ((InternalMap) map).keyArray();
    }

    @Override
    public Object values(Object map) {
        return ((InternalMap) map).valueArray();
    }

    @Override
    public byte[] bytes(Object value) {
        return value instanceof BinaryString text
                ? text.toBytes()
                : value instanceof Blob blob ? blob.toData() : (byte[]) value;
    }

    @Override
    public void set(DecimalVector decimals, int at, Object value) {
        decimals.setSafe(at, ((Decimal) value).toBigDecimal().setScale(decimals.getScale()));
    }

    @Override
    public long millis(Object time) {
        return ((Timestamp) time).getMillisecond();
    }

    @Override
    public int nanos(Object time) {
        return ((Timestamp) time).getNanoOfMillisecond();
    }
}
