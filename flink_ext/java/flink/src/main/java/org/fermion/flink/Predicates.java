package org.fermion.flink;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.Map;
import org.apache.flink.table.expressions.CallExpression;
import org.apache.flink.table.expressions.FieldReferenceExpression;
import org.apache.flink.table.expressions.ResolvedExpression;
import org.apache.flink.table.expressions.ValueLiteralExpression;
import org.apache.flink.table.functions.BuiltInFunctionDefinitions;
import org.apache.flink.table.functions.FunctionDefinition;

/** Predicates of Flink as JSON. Which of them have an exact counterpart, Python decides. */
final class Predicates {
    private static final Map<FunctionDefinition, String> OPERATIONS = Map.ofEntries(
            Map.entry(BuiltInFunctionDefinitions.AND, "and"),
            Map.entry(BuiltInFunctionDefinitions.OR, "or"),
            Map.entry(BuiltInFunctionDefinitions.NOT, "not"),
            Map.entry(BuiltInFunctionDefinitions.EQUALS, "="),
            Map.entry(BuiltInFunctionDefinitions.NOT_EQUALS, "<>"),
            Map.entry(BuiltInFunctionDefinitions.LESS_THAN, "<"),
            Map.entry(BuiltInFunctionDefinitions.LESS_THAN_OR_EQUAL, "<="),
            Map.entry(BuiltInFunctionDefinitions.GREATER_THAN, ">"),
            Map.entry(BuiltInFunctionDefinitions.GREATER_THAN_OR_EQUAL, ">="),
            Map.entry(BuiltInFunctionDefinitions.IS_NULL, "is_null"),
            Map.entry(BuiltInFunctionDefinitions.IS_NOT_NULL, "is_not_null"),
            Map.entry(BuiltInFunctionDefinitions.IN, "in"));

    private Predicates() {}

    /** A predicate; what is not known has a name that Python does not know. */
    static ObjectNode json(ResolvedExpression expression) {
        ObjectNode node = TableAccess.JSON.createObjectNode();
        if (expression instanceof FieldReferenceExpression field) {
            return node.put("op", "column").put("column", field.getName());
        }
        if (expression instanceof ValueLiteralExpression literal) {
            return literal(node.put("op", "literal"), literal);
        }
        if (!(expression instanceof CallExpression call)) {
            return node.put("op", "unknown " + expression.getClass().getSimpleName());
        }
        if (call.getFunctionDefinition() == BuiltInFunctionDefinitions.LIKE) {
            return like(node, call);
        }
        String operation = OPERATIONS.get(call.getFunctionDefinition());
        node.put("op", operation == null ? "unknown " + call.getFunctionName() : operation);
        ArrayNode arguments = node.putArray("args");
        call.getResolvedChildren().forEach(child -> arguments.add(json(child)));
        return node;
    }

    /** LIKE 'abc%' selects a prefix; other patterns are not known. */
    private static ObjectNode like(ObjectNode node, CallExpression call) {
        ArrayNode arguments = node.putArray("args");
        arguments.add(json(call.getResolvedChildren().get(0)));
        if (call.getResolvedChildren().size() == 2
                && call.getResolvedChildren().get(1) instanceof ValueLiteralExpression literal
                && literal.getValueAs(String.class).orElse("").matches("[^%_\\\\]+%")) {
            String pattern = literal.getValueAs(String.class).orElseThrow();
            arguments.addObject().put("op", "literal").put("kind", "text")
                    .put("value", pattern.substring(0, pattern.length() - 1));
            return node.put("op", "starts_with");
        }
        return node.put("op", "unknown LIKE");
    }

    private static ObjectNode literal(ObjectNode node, ValueLiteralExpression literal) {
        Object value = literal.isNull() ? null : literal.getValueAs(Object.class).orElse(null);
        if (value instanceof Byte || value instanceof Short || value instanceof Integer || value instanceof Long) {
            return literal.getOutputDataType().getLogicalType().getTypeRoot().name().endsWith("INT")
                            || literal.getOutputDataType().getLogicalType().getTypeRoot().name().equals("INTEGER")
                    ? node.put("kind", "integer").put("value", value.toString())
                    : node.put("kind", "unknown");
        } else if (value instanceof BigDecimal decimal) {
            return node.put("kind", "decimal").put("value", decimal.toPlainString());
        } else if (value instanceof Float || value instanceof Double) {
            return node.put("kind", "double").put("value", Double.toString(((Number) value).doubleValue()));
        } else if (value instanceof Boolean) {
            return node.put("kind", "boolean").put("value", value.toString());
        } else if (value instanceof String text) {
            return node.put("kind", "text").put("value", text);
        } else if (value instanceof LocalDate) {
            return node.put("kind", "date").put("value", value.toString());
        } else if (value instanceof LocalDateTime) {
            return node.put("kind", "timestamp").put("value", value.toString());
        } else if (value instanceof Instant) {
            return node.put("kind", "instant").put("value", value.toString());
        }
        return node.put("kind", "unknown");
    }
}
