// Asks a server of Flight SQL with the client of Arrow's Go library: go run . ADDRESS TOKEN
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// rows prints every row of an answer, as JSON.
func rows(ctx context.Context, client *flightsql.Client, what string, info *flight.FlightInfo) {
	for _, endpoint := range info.Endpoint {
		reader, err := client.DoGet(ctx, endpoint.Ticket)
		check(err)
		for reader.Next() {
			data, err := reader.Record().MarshalJSON()
			check(err)
			var values []map[string]any
			check(json.Unmarshal(data, &values))
			for _, value := range values {
				line, err := json.Marshal(value)
				check(err)
				fmt.Println(what, string(line))
			}
		}
		check(reader.Err())
		reader.Release()
	}
}

func main() {
	client, err := flightsql.NewClient(os.Args[1], nil, nil,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer client.Close()
	ctx := context.Background()
	_, err = client.Execute(ctx, "SELECT 1")
	fmt.Println("without token:", err != nil)
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+os.Args[2])

	info, err := client.GetTables(ctx, &flightsql.GetTablesOpts{})
	check(err)
	rows(ctx, client, "table", info)
	info, err = client.Execute(ctx, "SELECT kind, count(*) AS n FROM db.events GROUP BY kind ORDER BY kind")
	check(err)
	rows(ctx, client, "row", info)

	statement, err := client.Prepare(ctx, "SELECT count(*) AS n FROM db.events WHERE id < ?")
	check(err)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(
		[]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}}, nil))
	builder.Field(0).(*array.Int64Builder).Append(10)
	statement.SetParameters(builder.NewRecord())
	info, err = statement.Execute(ctx)
	check(err)
	rows(ctx, client, "prepared", info)
	check(statement.Close(ctx))

	_, err = client.Execute(ctx, "DROP TABLE db.events")
	fmt.Println("error:", err)
}
