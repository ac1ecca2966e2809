// Asks a server of Flight SQL with Arrow's JDBC driver: java Jdbc.java PORT TOKEN [leave]
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.sql.*;
import java.util.Properties;

public class Jdbc {
    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:arrow-flight-sql://127.0.0.1:" + arguments[0] + "/?useEncryption=false";
        Properties user = new Properties();
        user.put("user", "anyone");
        user.put("password", arguments[1]);
        try (Connection c = DriverManager.getConnection(url + "&token=" + arguments[1]);
             Statement statement = c.createStatement()) {
            if (arguments.length > 2) {
                c.getMetaData().getTables(null, null, "%", null).next();
                return;  // with an open result set of metadata
            }
            metadata(c.getMetaData());
            try (ResultSet r = statement.executeQuery(
                    "SELECT kind, count(*) FROM db.events GROUP BY kind ORDER BY kind")) {
                while (r.next()) System.out.println("row " + r.getString(1) + " " + r.getLong(2));
            }
            prepared(c);
            failing(statement, "SELECT nope FROM db.events");
            failing(statement, "DROP TABLE db.events");
            ResultSet left = statement.executeQuery("SELECT * FROM db.events");
            left.next();  // the statement closes it
        }
        try (Connection c = DriverManager.getConnection(url, user)) {
            System.out.println("password " + c.isValid(10));
        }
        try (Connection c = DriverManager.getConnection(url + "&token=another")) {
            c.createStatement().executeQuery("SELECT 1");
        } catch (SQLException refused) {
            System.out.println("refused " + refused.getMessage().contains("the server's token"));
        }
    }

    static void metadata(DatabaseMetaData m) throws Exception {
        System.out.println("product " + m.getDatabaseProductName());
        try (ResultSet r = m.getCatalogs()) {
            while (r.next()) System.out.println("catalog " + r.getString(1));
        }
        try (ResultSet r = m.getTables(null, null, "%", null)) {
            while (r.next()) System.out.println(
                "table " + r.getString("TABLE_SCHEM") + " " + r.getString("TABLE_NAME"));
        }
        try (ResultSet r = m.getColumns(null, "db", "events", "%")) {
            while (r.next()) System.out.println(
                "column " + r.getString("COLUMN_NAME") + " " + r.getString("TYPE_NAME"));
        }
        try (ResultSet r = m.getPrimaryKeys(null, "db.deep.er", "users")) {
            while (r.next()) System.out.println("key " + r.getString("COLUMN_NAME"));
        }
        for (Method method : DatabaseMetaData.class.getMethods()) {
            if (method.getParameterCount() > 0 || method.getReturnType() == ResultSet.class) continue;
            try {
                method.invoke(m);
            } catch (InvocationTargetException error) {
                System.out.println("failed " + method.getName() + ": " + error.getCause());
            }
        }
    }

    static void prepared(Connection c) throws SQLException {
        String query = "SELECT id FROM db.events WHERE id < ? AND kind = ? ORDER BY id LIMIT ?";
        try (PreparedStatement p = c.prepareStatement(query)) {
            for (int most : new int[] {4, 9}) {
                p.setLong(1, most);
                p.setString(2, "read");
                p.setLong(3, 3);
                try (ResultSet r = p.executeQuery()) {
                    while (r.next()) System.out.println("prepared " + most + " " + r.getLong(1));
                }
            }
        }
    }

    static void failing(Statement statement, String query) {
        try {
            statement.executeQuery(query);
        } catch (SQLException error) {
            System.out.println("error " + error.getMessage().replace("\n", " "));
        }
    }
}
