package org.fermion.arrow;

import java.util.List;
import java.util.function.Function;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BaseIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.DurationVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.FixedSizeBinaryVector;
import org.apache.arrow.vector.FloatingPointVector;
import org.apache.arrow.vector.TimeMilliVector;
import org.apache.arrow.vector.TimeSecVector;
import org.apache.arrow.vector.TimeStampVector;
import org.apache.arrow.vector.VariableWidthFieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.FixedSizeListVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Rows of an engine as batches of Arrow, one after the other. {@link ArrowColumn} is the other direction.
 *
 * @param <T> the engine's types
 */
public final class ArrowRows<T> implements AutoCloseable {
    private static final int SECOND_MILLIS = 1000;

    private final EngineRows<T> engine;
    private final VectorSchemaRoot root;
    private final Setter setter;
    private int rows;

    /**
     * A batch without rows.
     *
     * @param schema the columns of the rows; further ones are the caller's
     */
    public ArrowRows(Schema schema, T type, EngineRows<T> engine, BufferAllocator memory) {
        this.engine = engine;
        root = VectorSchemaRoot.create(schema, memory);
        setter = fields(root.getFieldVectors(), type);
    }

    /** Add a row, whose values are copied. */
    public void add(Object row) {
        setter.set(rows, row);
        rows++;
    }

    /** How many rows the batch has. */
    public int rows() {
        return rows;
    }

    /** The batch; valid until it is cleared. */
    public VectorSchemaRoot batch() {
        root.setRowCount(rows);
        return root;
    }

    /** Begin the next batch. */
    public void clear() {
        root.clear();
        rows = 0;
    }

    @Override
    public void close() {
        root.close();
    }

    /** Stores a value in a vector. */
    private interface Setter {
        void set(int at, Object value);
    }

    private Setter fields(List<FieldVector> vectors, T type) {
        List<T> types = engine.children(type);
        Setter[] setters = new Setter[types.size()];
        for (int field = 0; field < setters.length; field++) {
            Function<Object, Object> getter = engine.field(type, field);
            Setter target = nullable(vectors.get(field), types.get(field));
            setters[field] = (at, row) -> target.set(at, getter.apply(row));
        }
        return (at, row) -> {
            for (Setter each : setters) {
                each.set(at, row);
            }
        };
    }

    private Setter nullable(FieldVector vector, T type) {
        Setter target = setter(vector, type);
        return (at, value) -> {
            if (value == null) {
                vector.setNull(at);
            } else {
                target.set(at, value);
            }
        };
    }

    private Setter setter(FieldVector vector, T type) {
        if (vector instanceof BaseIntVector numbers) {
            return (at, value) -> numbers.setWithPossibleTruncate(at, ((Number) value).longValue());
        } else if (vector instanceof FloatingPointVector numbers) {
            return (at, value) -> numbers.setSafeWithPossibleTruncate(at, ((Number) value).doubleValue());
        } else if (vector instanceof VariableWidthFieldVector texts) {
            return (at, value) -> texts.setSafe(at, engine.bytes(value));
        } else if (vector instanceof TimeStampVector times) {
            TimeUnit unit = ((ArrowType.Timestamp) times.getField().getType()).getUnit();
            return (at, value) -> times.setSafe(at, ticks(value, unit));
        } else if (vector instanceof DecimalVector decimals) {
            return (at, value) -> engine.set(decimals, at, value);
        } else if (vector instanceof DateDayVector days) {
            return (at, value) -> days.setSafe(at, (Integer) value);
        } else if (vector instanceof BitVector bits) {
            return (at, value) -> bits.setSafe(at, (Boolean) value ? 1 : 0);
        } else if (vector instanceof TimeSecVector seconds) {
            return (at, value) -> seconds.setSafe(at, (Integer) value / SECOND_MILLIS);
        } else if (vector instanceof TimeMilliVector millis) {
            return (at, value) -> millis.setSafe(at, (Integer) value);
        } else if (vector instanceof DurationVector millis) {
            return (at, value) -> millis.setSafe(at, (Long) value);
        } else if (vector instanceof FixedSizeBinaryVector bytes) {
            return (at, value) -> {
                check(bytes, "bytes", bytes.getByteWidth(), engine.bytes(value).length);
                bytes.setSafe(at, engine.bytes(value));
            };
        } else if (vector instanceof MapVector maps) { // before lists, which maps are too
            return map(maps, engine.children(type).get(0), engine.children(type).get(1));
        } else if (vector instanceof ListVector lists) {
            Setter items = items(lists.getDataVector(), engine.children(type).get(0));
            return (at, value) -> {
                items.set(lists.startNewValue(at), value);
                lists.endValue(at, engine.size(value));
            };
        } else if (vector instanceof FixedSizeListVector lists) {
            Setter items = items(lists.getDataVector(), engine.children(type).get(0));
            return (at, value) -> {
                check(lists, "elements", lists.getListSize(), engine.size(value));
                items.set(lists.startNewValue(at), value);
            };
        } else if (vector instanceof StructVector structs) {
            Setter fields = fields(structs.getChildrenFromFields(), type);
            return (at, value) -> {
                structs.setIndexDefined(at);
                fields.set(at, value);
            };
        }
        throw new IllegalStateException("column " + vector.getName() + ": rows do not travel as "
                + vector.getField().getType());
    }

    /** Stores the elements of an array, from a place on. */
    private Setter items(FieldVector vector, T type) {
        Setter target = nullable(vector, type);
        EngineRows.Element getter = engine.element(type);
        return (start, array) -> {
            for (int place = 0; place < engine.size(array); place++) {
                target.set(start + place, getter.get(array, place));
            }
        };
    }

    private Setter map(MapVector maps, T keyType, T valueType) {
        StructVector entries = (StructVector) maps.getDataVector();
        Setter keys = items(entries.getChildrenFromFields().get(0), keyType);
        Setter values = items(entries.getChildrenFromFields().get(1), valueType);
        EngineRows.Element key = engine.element(keyType);
        return (at, value) -> {
            int start = maps.startNewValue(at);
            Object keyArray = engine.keys(value);
            for (int place = 0; place < engine.size(value); place++) {
                if (key.get(keyArray, place) == null) {
                    throw new IllegalArgumentException(
                            "column " + maps.getName() + ": a map has the key null, which tables do not have");
                }
                entries.setIndexDefined(start + place);
            }
            keys.set(start, keyArray);
            values.set(start, engine.values(value));
            maps.endValue(at, engine.size(value));
        };
    }

    private static void check(FieldVector vector, String what, int expected, int found) {
        if (expected != found) {
            throw new IllegalArgumentException(
                    "column " + vector.getName() + ": expected " + expected + " " + what + ", found " + found);
        }
    }

    private long ticks(Object time, TimeUnit unit) {
        long millis = engine.millis(time);
        try {
            return switch (unit) {
                case SECOND -> Math.floorDiv(millis, SECOND_MILLIS);
                case MILLISECOND -> millis;
                case MICROSECOND -> Math.addExact(Math.multiplyExact(millis, 1_000L), engine.nanos(time) / 1_000);
                case NANOSECOND -> Math.addExact(Math.multiplyExact(millis, 1_000_000L), engine.nanos(time));
            };
        } catch (ArithmeticException error) {
            throw new IllegalArgumentException("time " + time + " does not fit in 64 bits: nanoseconds reach from 1677 "
                    + "to 2262 only; use a column of fewer digits, as TIMESTAMP(6)", error);
        }
    }
}
