package org.fermion.paimon;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.math.BigDecimal;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DecimalType;

/** Values of filters and statistics as JSON; null: values of this type have no form there. */
final class Values {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private Values() {}

    /** A value of Paimon. Floating-point numbers have none: Paimon orders NaN after all others. */
    static JsonNode toJson(Object value, DataType type) {
        return switch (type.getTypeRoot()) {
            case BOOLEAN -> JSON.booleanNode((Boolean) value);
            case TINYINT, SMALLINT, INTEGER, BIGINT, DATE, TIME_WITHOUT_TIME_ZONE ->
                JSON.numberNode(((Number) value).longValue());
            case CHAR, VARCHAR -> JSON.textNode(value.toString());
            case DECIMAL -> JSON.textNode(((Decimal) value).toBigDecimal().toPlainString());
            case TIMESTAMP_WITHOUT_TIME_ZONE, TIMESTAMP_WITH_LOCAL_TIME_ZONE -> {
                Timestamp time = (Timestamp) value;
                yield JSON.arrayNode().add(time.getMillisecond()).add(time.getNanoOfMillisecond());
            }
            default -> null;
        };
    }

    /** A value of Paimon from JSON. */
    static Object fromJson(JsonNode value, DataType type) {
        if (value == null || value.isNull()) {
            return null;
        }
        return switch (type.getTypeRoot()) {
            case BOOLEAN -> value.asBoolean();
            case TINYINT -> (byte) value.asInt();
            case SMALLINT -> (short) value.asInt();
            case INTEGER, DATE, TIME_WITHOUT_TIME_ZONE -> value.asInt();
            case BIGINT -> value.asLong();
            case FLOAT -> (float) value.asDouble();
            case DOUBLE -> value.asDouble();
            case CHAR, VARCHAR -> BinaryString.fromString(value.asText());
            case DECIMAL -> {
                DecimalType decimal = (DecimalType) type;
                yield Decimal.fromBigDecimal(
                        new BigDecimal(value.asText()), decimal.getPrecision(), decimal.getScale());
            }
            case TIMESTAMP_WITHOUT_TIME_ZONE, TIMESTAMP_WITH_LOCAL_TIME_ZONE ->
                Timestamp.fromEpochMillis(value.get(0).asLong(), value.get(1).asInt());
            default -> null;
        };
    }
}
