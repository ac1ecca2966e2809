package org.fermion.arrow;

import java.util.List;
import java.util.function.Function;
import org.apache.arrow.vector.DecimalVector;

/**
 * How an engine keeps values in its rows; numbers and booleans are boxed, dates are days, times of day milliseconds.
 *
 * @param <T> its types
 */
public interface EngineRows<T> {
    /** Types of the fields of a row, of the elements of an array, or of keys and values of a map. */
    List<T> children(T type);

    /** What returns a field of rows of a type, null where it is null. */
    Function<Object, Object> field(T type, int at);

    /** What returns elements of arrays, given the type of the element. */
    Element element(T type);

    /** Elements of an array, or entries of a map. */
    int size(Object items);

    /** The keys of a map, an array. */
    Object keys(Object map);

    /** The values of a map, an array. */
    Object values(Object map);

    /** A text or a binary value. */
    byte[] bytes(Object value);

    /** Store a decimal. */
    void set(DecimalVector decimals, int at, Object value);

    /** Milliseconds since 1970 of a timestamp. */
    long millis(Object time);

    /** Nanoseconds of a timestamp after its milliseconds. */
    int nanos(Object time);

    /** Returns elements of an array, null where they are null. */
    interface Element {
        Object get(Object array, int at);
    }
}
