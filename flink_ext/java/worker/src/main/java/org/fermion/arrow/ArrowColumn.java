package org.fermion.arrow;

import java.math.BigDecimal;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.FixedSizeBinaryVector;
import org.apache.arrow.vector.FixedWidthVector;
import org.apache.arrow.vector.TimeSecVector;
import org.apache.arrow.vector.VariableWidthFieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.BaseListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.util.TransferPair;

/**
 * Values of a vector by their row. {@link ArrowRows} is the other direction.
 *
 * <p>The public methods are those that engines want of columns; a subclass makes an engine's own values of the others.
 */
public abstract class ArrowColumn {
    private static final int SECOND_MILLIS = 1000;

    private final FieldVector vector;
    private final ArrowBuf data;
    private final int factor;
    private final long ticksOfMilli;

    /** A column; null: all its values are null. */
    protected ArrowColumn(FieldVector vector) {
        this.vector = vector;
        data = vector instanceof FixedWidthVector ? vector.getDataBuffer() : null;
        factor = vector instanceof TimeSecVector ? SECOND_MILLIS : 1;
        ticksOfMilli = vector != null && vector.getField().getType() instanceof ArrowType.Timestamp time
                ? ticksOfMilli(time.getUnit())
                : 0;
    }

    private static long ticksOfMilli(TimeUnit unit) {
        return switch (unit) {
            case SECOND -> 0;
            case MILLISECOND -> 1;
            case MICROSECOND -> 1_000;
            case NANOSECOND -> 1_000_000;
        };
    }

    /** The vectors of a batch, taken from it: the next batch may be loaded while these are read. */
    public static List<FieldVector> taken(VectorSchemaRoot batch, BufferAllocator memory) {
        return batch.getFieldVectors().stream().map(vector -> {
            TransferPair pair = vector.getTransferPair(memory);
            pair.transfer();
            return (FieldVector) pair.getTo();
        }).toList();
    }

    /** Vectors of the fields of a struct, of the elements of a list, or of keys and values of a map. */
    protected static List<FieldVector> children(FieldVector vector) {
        List<FieldVector> children = vector.getChildrenFromFields();
        return vector instanceof MapVector ? children.get(0).getChildrenFromFields() : children;
    }

    public boolean isNullAt(int at) {
        return vector == null || vector.isNull(at);
    }

    public boolean getBoolean(int at) {
        return (data.getByte(at >> 3) >> (at & 7) & 1) != 0;
    }

    public byte getByte(int at) {
        return data.getByte(at);
    }

    public short getShort(int at) {
        return data.getShort((long) at * Short.BYTES);
    }

    public int getInt(int at) {
        return data.getInt((long) at * Integer.BYTES) * factor;
    }

    public long getLong(int at) {
        return data.getLong((long) at * Long.BYTES);
    }

    public float getFloat(int at) {
        return data.getFloat((long) at * Float.BYTES);
    }

    public double getDouble(int at) {
        return data.getDouble((long) at * Double.BYTES);
    }

    /** A text or a binary value. */
    protected byte[] bytes(int at) {
        return vector instanceof FixedSizeBinaryVector fixed
                ? fixed.get(at)
                : ((VariableWidthFieldVector) vector).get(at);
    }

    /** A decimal of up to 18 digits, without its scale: the high half repeats the sign. */
    protected long unscaled(int at) {
        return data.getLong((long) at * DecimalVector.TYPE_WIDTH);
    }

    protected BigDecimal decimal(int at) {
        return ((DecimalVector) vector).getObject(at);
    }

    /** Milliseconds since 1970 of a timestamp. */
    protected long millis(int at) {
        return ticksOfMilli == 0
                ? Math.multiplyExact(getLong(at), SECOND_MILLIS)
                : Math.floorDiv(getLong(at), ticksOfMilli);
    }

    /** Nanoseconds of a timestamp after its milliseconds. */
    protected int nanos(int at) {
        return ticksOfMilli == 0
                ? 0
                : (int) (Math.floorMod(getLong(at), ticksOfMilli) * (1_000_000 / ticksOfMilli));
    }

    /** Where the elements of a list or the entries of a map begin. */
    protected int start(int at) {
        return ((BaseListVector) vector).getElementStartIndex(at);
    }

    /** How many elements or entries there are. */
    protected int size(int at) {
        return ((BaseListVector) vector).getElementEndIndex(at) - start(at);
    }
}
