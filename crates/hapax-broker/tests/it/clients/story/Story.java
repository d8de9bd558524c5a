// The story of `clients/mod.rs` with Apache Kafka's own client. Arguments: bootstrap, topic, group. Prints one JSON
// object.

import java.time.Duration;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

public class Story {
    static final Duration LIMIT = Duration.ofSeconds(60);
    static final Duration QUIET = Duration.ofSeconds(1);
    static String bootstrap, topic, group;

    static KafkaProducer<String, String> producer(String id) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", id);
        config.put("transaction.timeout.ms", 60000);
        var opened = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        opened.initTransactions();
        return opened;
    }

    static void send(Producer<String, String> to, String... values) throws Exception {
        for (String value : values) to.send(new ProducerRecord<>(topic, 0, null, value)).get();
    }

    static KafkaConsumer<String, String> consumer(String isolation, String name) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", name);
        config.put("isolation.level", isolation);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("fetch.max.wait.ms", 50);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static List<String> read(String isolation, String name, int expected) {
        List<String> values = new ArrayList<>();
        try (var consumer = consumer(isolation, name)) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + LIMIT.toNanos();
            while (System.nanoTime() < deadline) {
                boolean done = values.size() >= expected;
                var records = consumer.poll(done ? QUIET : Duration.ofMillis(200));
                if (done && records.isEmpty()) break;
                for (var record : records) values.add(record.value());
            }
        }
        return values;
    }

    static String list(List<String> values) {
        return values.stream().map(value -> "\"" + value + "\"").collect(Collectors.joining(",", "[", "]"));
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        group = arguments[2];
        var admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        var place = new TopicPartition(topic, 0);
        var member = new ConsumerGroupMetadata(group);

        var first = producer(topic + "-id");
        first.beginTransaction();
        send(first, "a0", "a1", "a2");
        first.commitTransaction();
        first.beginTransaction();
        send(first, "b0", "b1");
        first.abortTransaction();
        first.beginTransaction();
        send(first, "c0");
        first.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(5)), member);
        first.commitTransaction();
        first.beginTransaction();
        send(first, "d0");
        first.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(9)), member);
        first.abortTransaction();
        long offset = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(place).offset();

        var second = producer(topic + "-id");
        String fenced = "nothing";
        try {
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, 0, null, "never"));
            first.commitTransaction();
        } catch (KafkaException error) {
            fenced = error.getClass().getSimpleName();
        }
        first.close(Duration.ZERO);

        var third = producer(topic + "-other");
        third.beginTransaction();
        send(third, "o0");
        second.beginTransaction();
        send(second, "e0");
        second.commitTransaction();
        var held = read("read_committed", topic + "-held", 4);
        third.abortTransaction();
        System.out.printf(
            "{\"offset\":%d,\"fenced\":\"%s\",\"held\":%s,\"committed\":%s,\"everything\":%s}%n",
            offset,
            fenced,
            list(held),
            list(read("read_committed", topic + "-committed", 5)),
            list(read("read_uncommitted", topic + "-everything", 9)));
        second.close();
        third.close();
        admin.close();
    }
}
