// A client in Go whose stubs were generated from penstock_v1.proto alone. It runs every call once
// at the address that it is given, and prints the path of each method that it called.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sort"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "penstock.local/penstock/v1"
)

const topic, group = "from-go", "workers-in-go"

var called = map[string]bool{}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatalf("a call failed: %v", err)
	}
	return value
}

func check(is bool, text string, found any) {
	if !is {
		log.Fatalf("%s: %v", text, found)
	}
}

func main() {
	connection := must(grpc.NewClient(
		os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any,
			cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			called[method] = true
			return invoke(ctx, method, request, reply, cc, options...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc,
			cc *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			called[method] = true
			return open(ctx, desc, cc, method, options...)
		}),
	))
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	administration := pb.NewAdministrationClient(connection)
	administer(ctx, administration)
	streams(ctx, pb.NewStreamsClient(connection))
	groups(ctx, pb.NewGroupsClient(connection))
	queues(ctx, pb.NewQueuesClient(connection))
	locks(ctx, pb.NewLocksClient(connection))
	must(administration.DeleteTopic(ctx, &pb.DeleteTopicRequest{Name: topic}))
	paths := make([]string, 0, len(called))
	for path := range called {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	for _, path := range paths {
		fmt.Println(path)
	}
}

func administer(ctx context.Context, client pb.AdministrationClient) {
	made := must(client.CreateTopic(ctx, &pb.CreateTopicRequest{
		Name: topic, Partitions: proto.Int32(1), ReplicationFactor: proto.Int32(3),
	}))
	check(made.Partitions == 1, "one partition", made)
	grown := must(client.GrowTopic(ctx, &pb.GrowTopicRequest{Name: topic, Partitions: 2}))
	check(grown.Partitions == 2, "two partitions", grown)
	_, err := client.CreateTopic(ctx, &pb.CreateTopicRequest{Name: topic})
	problem := status.Convert(err)
	check(problem.Code() == codes.AlreadyExists, "a topic is not made twice", problem)
	info := problem.Details()[0].(*errdetails.ErrorInfo)
	check(info.Reason == "TOPIC_ALREADY_EXISTS", "the reason", info)
	must(client.ListTopics(ctx, &pb.ListTopicsRequest{}))
	described := must(client.DescribeTopic(ctx, &pb.DescribeTopicRequest{Name: topic}))
	check(len(described.Partitions) == 2, "partitions", described)
	must(client.ChangeSettings(ctx, &pb.ChangeSettingsRequest{
		Kind: "topic", Name: topic,
		Changes: []*pb.SettingChange{{Name: "retention.ms", Value: proto.String("1000000")}},
	}))
	must(client.DescribeSettings(ctx, &pb.DescribeSettingsRequest{Kind: "topic", Name: topic}))
	cluster := must(client.DescribeCluster(ctx, &pb.DescribeClusterRequest{}))
	check(len(cluster.Nodes) == 3, "nodes", cluster)
	must(client.DescribeNode(ctx, &pb.DescribeNodeRequest{}))
}

func records(values ...string) []*pb.NewRecord {
	made := make([]*pb.NewRecord, 0, len(values))
	for _, value := range values {
		made = append(made, &pb.NewRecord{Value: []byte(value), Partition: proto.Int32(0)})
	}
	return made
}

func streams(ctx context.Context, client pb.StreamsClient) {
	written := must(client.Publish(ctx, &pb.PublishRequest{Topic: topic, Records: records("a", "b")}))
	check(len(written.Offsets) == 2 && written.Offsets[1] == 1, "offsets", written)
	publishing := must(client.PublishStream(ctx))
	for _, value := range []string{"c", "d"} {
		request := &pb.PublishRequest{Topic: topic, Records: records(value)}
		check(publishing.Send(request) == nil, "sending", value)
		reply := must(publishing.Recv())
		check(len(reply.GetWritten().GetOffsets()) == 1, "a reply", reply)
	}
	check(publishing.CloseSend() == nil, "closing", nil)
	fetched := must(client.Fetch(ctx, &pb.FetchRequest{Topic: topic, Partition: proto.Int32(0)}))
	check(len(fetched.Records) == 4 && string(fetched.Records[3].Value) == "d", "records", fetched)
	latest := &pb.Start{Place: &pb.Start_Edge{Edge: pb.Edge_EDGE_LATEST}}
	sought := must(client.Seek(ctx, &pb.SeekRequest{
		Topic: topic, Partition: proto.Int32(0), Start: latest,
	}))
	check(sought.Offset == 4, "the end", sought)

	following := must(client.Subscribe(ctx))
	say := func(request *pb.SubscribeRequest) {
		check(following.Send(request) == nil, "sending", request)
	}
	say(&pb.SubscribeRequest{Request: &pb.SubscribeRequest_Start{Start: &pb.StartSubscription{
		Topic: topic, Partitions: []int32{0}, Group: "readers-in-go", Credit: 1,
		Start: &pb.Start{Place: &pb.Start_Offset{Offset: 2}},
	}}})
	check(must(following.Recv()).GetStarted() != nil, "started", nil)
	first := must(following.Recv()).GetRecords()
	check(len(first.Records) == 1 && first.NextOffset == 3, "one record for one credit", first)
	say(&pb.SubscribeRequest{Request: &pb.SubscribeRequest_Commit{Commit: &pb.Positions{
		Positions: []*pb.Position{{Partition: 0, Offset: 3}},
	}}})
	check(must(following.Recv()).GetCommitted() != nil, "committed", nil)
	say(&pb.SubscribeRequest{Request: &pb.SubscribeRequest_Credit{Credit: 10}})
	second := must(following.Recv()).GetRecords()
	check(string(second.Records[0].Value) == "d", "the next record", second)
	check(following.CloseSend() == nil, "closing", nil)
}

func groups(ctx context.Context, client pb.GroupsClient) {
	const name = "readers-in-go"
	read := must(client.ReadGroupOffsets(ctx, &pb.ReadGroupOffsetsRequest{GroupId: name}))
	check(len(read.Offsets) == 1 && read.Offsets[0].Offset == 3, "positions", read)
	must(client.CommitGroupOffsets(ctx, &pb.CommitGroupOffsetsRequest{
		GroupId: name, Offsets: []*pb.GroupOffset{{Topic: topic, Partition: 1, Offset: 0}},
	}))
	must(client.ListGroups(ctx, &pb.ListGroupsRequest{}))
	must(client.DescribeGroup(ctx, &pb.DescribeGroupRequest{GroupId: name}))
	must(client.DeleteGroup(ctx, &pb.DeleteGroupRequest{GroupId: name}))
}

func queues(ctx context.Context, client pb.QueuesClient) {
	poll := &pb.PollRequest{
		Topic: topic, Group: group, RecordsMax: proto.Int32(1), WaitMs: 20000, LeaseMs: 60000,
	}
	token := func() []string {
		polled := must(client.Poll(ctx, poll))
		check(len(polled.Messages) == 1, "one message", polled)
		return []string{polled.Messages[0].Token}
	}
	settled := func(found *pb.TokenOutcomes) {
		check(len(found.Outcomes) == 1 && found.Outcomes[0].Outcome == "ok", "settled", found)
	}
	settled(must(client.Ack(ctx, &pb.AckRequest{Topic: topic, Group: group, Tokens: token()})))
	settled(must(client.Nack(ctx, &pb.NackRequest{
		Topic: topic, Group: group, Tokens: token(), DelayMs: proto.Int32(0),
	})))
	held := token()
	settled(must(client.Extend(ctx, &pb.ExtendRequest{Topic: topic, Group: group, Tokens: held})))
	settled(must(client.Reject(ctx, &pb.RejectRequest{Topic: topic, Group: group, Tokens: held})))

	working := must(client.Subscribe(ctx))
	say := func(request *pb.QueueSubscribeRequest) {
		check(working.Send(request) == nil, "sending", request)
	}
	say(&pb.QueueSubscribeRequest{Request: &pb.QueueSubscribeRequest_Start{
		Start: &pb.StartQueueSubscription{Topic: topic, Group: group, Credit: 1},
	}})
	pushed := must(working.Recv()).GetMessages()
	check(len(pushed.GetMessages()) == 1, "one message for one credit", pushed)
	say(&pb.QueueSubscribeRequest{Request: &pb.QueueSubscribeRequest_Ack{
		Ack: &pb.Tokens{Tokens: []string{pushed.Messages[0].Token}},
	}})
	settled(must(working.Recv()).GetSettled())
	check(working.CloseSend() == nil, "closing", nil)

	must(client.Peek(ctx, &pb.PeekRequest{Topic: topic, Group: group}))
	must(client.Pause(ctx, &pb.PauseRequest{Topic: topic, Group: group}))
	// A node learns of it from the cluster's log, a moment later.
	for !must(client.Stats(ctx, &pb.StatsRequest{Topic: topic, Group: group})).IsPaused {
		time.Sleep(10 * time.Millisecond)
	}
	must(client.Resume(ctx, &pb.ResumeRequest{Topic: topic, Group: group}))
	must(client.Purge(ctx, &pb.PurgeRequest{Topic: topic, Group: group}))
	_, err := client.Redrive(ctx, &pb.RedriveRequest{Topic: topic, Group: group})
	check(status.Code(err) != codes.Unimplemented, "a group without dead letters", err)
}

func locks(ctx context.Context, client pb.LocksClient) {
	const name, owner = "lock-of-go", "go"
	held := must(client.AcquireLock(ctx, &pb.AcquireLockRequest{Name: name, Owner: owner}))
	token := held.FencingToken
	renewed := must(client.RenewLock(ctx, &pb.RenewLockRequest{
		Name: name, Owner: owner, FencingToken: token,
	}))
	check(renewed.FencingToken == token, "the same token", renewed)
	must(client.ListLocks(ctx, &pb.ListLocksRequest{}))
	found := must(client.DescribeLock(ctx, &pb.DescribeLockRequest{Name: name}))
	check(found.Lock.GetOwner() == owner, "the owner", found)
	must(client.ReleaseLock(ctx, &pb.ReleaseLockRequest{
		Name: name, Owner: owner, FencingToken: token,
	}))
}
