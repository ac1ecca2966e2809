package org.fermion.paimon;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.paimon.predicate.FieldRef;
import org.apache.paimon.predicate.FunctionVisitor;
import org.apache.paimon.predicate.LeafPredicate;
import org.apache.paimon.predicate.Predicate;

/**
 * Predicates of Paimon as JSON for a worker. Null: not expressed, so that all rows are read; Paimon tests
 * the rows that come where it has to.
 */
final class Filters implements FunctionVisitor<JsonNode> {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private Filters() {}

    /** What holds for all rows that are wanted; null: nothing that can be expressed. */
    static JsonNode toJson(List<Predicate> predicates) {
        Filters filters = new Filters();
        return predicates == null
                ? null
                : filters.visitAnd(predicates.stream().map(each -> each.visit(filters)).toList());
    }

    private static JsonNode leaf(String operation, FieldRef field, Object value) {
        JsonNode literal = value == null ? null : Values.toJson(value, field.type());
        return literal == null ? null : leaf(operation, field).set("value", literal);
    }

    private static ObjectNode leaf(String operation, FieldRef field) {
        return JSON.objectNode().put("is", operation).put("column", field.name());
    }

    private static JsonNode list(String operation, FieldRef field, List<Object> values) {
        ArrayNode literals = JSON.arrayNode();
        for (Object value : values) {
            JsonNode literal = value == null ? null : Values.toJson(value, field.type());
            if (literal == null) {
                return null;
            }
            literals.add(literal);
        }
        return leaf(operation, field).set("value", literals);
    }

    @Override
    public JsonNode visitNonFieldLeaf(LeafPredicate predicate) {
        return null;
    }

    @Override
    public JsonNode visitIsNotNull(FieldRef field) {
        return leaf("not_null", field);
    }

    @Override
    public JsonNode visitIsNull(FieldRef field) {
        return leaf("null", field);
    }

    @Override
    public JsonNode visitStartsWith(FieldRef field, Object value) {
        return leaf("starts_with", field, value);
    }

    @Override
    public JsonNode visitEndsWith(FieldRef field, Object value) {
        return null;
    }

    @Override
    public JsonNode visitContains(FieldRef field, Object value) {
        return null;
    }

    @Override
    public JsonNode visitLike(FieldRef field, Object value) {
        return null;
    }

    @Override
    public JsonNode visitLessThan(FieldRef field, Object value) {
        return leaf("<", field, value);
    }

    @Override
    public JsonNode visitGreaterOrEqual(FieldRef field, Object value) {
        return leaf(">=", field, value);
    }

    @Override
    public JsonNode visitNotEqual(FieldRef field, Object value) {
        return leaf("!=", field, value);
    }

    @Override
    public JsonNode visitLessOrEqual(FieldRef field, Object value) {
        return leaf("<=", field, value);
    }

    @Override
    public JsonNode visitEqual(FieldRef field, Object value) {
        return leaf("==", field, value);
    }

    @Override
    public JsonNode visitGreaterThan(FieldRef field, Object value) {
        return leaf(">", field, value);
    }

    @Override
    public JsonNode visitIn(FieldRef field, List<Object> values) {
        return list("in", field, values);
    }

    @Override
    public JsonNode visitNotIn(FieldRef field, List<Object> values) {
        return list("not_in", field, values);
    }

    @Override
    public JsonNode visitAnd(List<JsonNode> parts) {
        ArrayNode known = JSON.arrayNode();
        parts.stream().filter(part -> part != null).forEach(known::add);
        return known.isEmpty() ? null : JSON.objectNode().put("is", "and").set("parts", known);
    }

    @Override
    public JsonNode visitOr(List<JsonNode> parts) {
        if (parts.isEmpty() || parts.contains(null)) {
            return null;
        }
        ArrayNode all = JSON.arrayNode();
        parts.forEach(all::add);
        return JSON.objectNode().put("is", "or").set("parts", all);
    }
}
