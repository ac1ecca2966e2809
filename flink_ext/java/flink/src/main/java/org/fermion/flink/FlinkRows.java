package org.fermion.flink;

import java.util.List;
import java.util.function.Function;
import org.apache.arrow.vector.DecimalVector;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.MapData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.types.logical.LogicalType;
import org.fermion.arrow.EngineRows;

/** How Flink keeps values in its rows. */
final class FlinkRows implements EngineRows<LogicalType> {
    @Override
    public List<LogicalType> children(LogicalType type) {
        return type.getChildren();
    }

    @Override
    public Function<Object, Object> field(LogicalType type, int at) {
        RowData.FieldGetter getter = RowData.createFieldGetter(type.getChildren().get(at), at);
        return row -> getter.getFieldOrNull((RowData) row);
    }

    @Override
    public Element element(LogicalType type) {
        ArrayData.ElementGetter getter = ArrayData.createElementGetter(type);
        return (array, at) -> getter.getElementOrNull((ArrayData) array, at);
    }

    @Override
    public int size(Object items) {
        return items instanceof MapData map ? map.size() : ((ArrayData) items).size();
    }

    @Override
    public Object keys(Object map) {
        return ((MapData) map).keyArray();
    }

    @Override
    public Object values(Object map) {
        return ((MapData) map).valueArray();
    }

    @Override
    public byte[] bytes(Object value) {
        return value instanceof StringData text ? text.toBytes() : (byte[]) value;
    }

    @Override
    public void set(DecimalVector decimals, int at, Object value) {
        DecimalData decimal = (DecimalData) value;
        if (decimal.isCompact()) {
            decimals.setSafe(at, decimal.toUnscaledLong());
        } else {
            decimals.setSafe(at, decimal.toBigDecimal());
        }
    }

    @Override
    public long millis(Object time) {
        return ((TimestampData) time).getMillisecond();
    }

    @Override
    public int nanos(Object time) {
        return ((TimestampData) time).getNanoOfMillisecond();
    }
}
