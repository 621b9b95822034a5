import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.io.*;
import java.lang.management.*;
import java.nio.*;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.util.concurrent.CyclicBarrier;

/**
 * Caffeine in a race that another process runs: CaffeinePeer WORK KIND CAPACITY FILL STREAM...
 *
 * <p>Files hold keys as 64-bit numbers. It says "ready" when warm; then each line "THREADS MILLISECONDS" is answered by one with
 * operations, hits, and nanoseconds on a processor, on the wall, and waiting for a processor, of each thread.
 * Keys are objects made beforehand, in the order in which they are asked for. A process serves one workload, so that the
 * compiler sees one type of keys.
 */
public final class CaffeinePeer {
  static final int CHUNK = 1024;
  static volatile boolean isOver;
  static volatile long sink;

  final Cache<Object, Object> cache;
  final Object[][] streams;
  final int[] positions;
  final String work;

  CaffeinePeer(String[] arguments) throws IOException {
    work = arguments[0];
    var kind = arguments[1];
    cache = Caffeine.newBuilder().maximumSize(Long.parseLong(arguments[2])).build();
    for (var key : keys(arguments[3], kind)) { cache.put(key, key); }
    cache.cleanUp();
    streams = new Object[arguments.length - 4][];
    for (int i = 0; i < streams.length; i++) { streams[i] = keys(arguments[4 + i], kind); }
    positions = new int[streams.length];
  }

  static Object[] keys(String file, String kind) throws IOException {
    try (var channel = FileChannel.open(Path.of(file))) {
      var numbers = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size()).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
      var keys = new Object[numbers.remaining()];
      for (int i = 0; i < keys.length; i++) {
        long number = numbers.get(i);
        keys[i] = kind.equals("text") ? String.format("session:%016x:profile", number) : Long.valueOf(number);
      }
      return keys;
    }
  }

  int look(Object[] keys, int from) {
    int hits = 0, sum = 0;
    for (int i = from; i < from + CHUNK; i++) {
      var value = cache.getIfPresent(keys[i]);
      if (value != null) { hits++; sum += System.identityHashCode(value) == 0 ? 1 : 0; }
    }
    sink = sum;
    return hits;
  }

  int lookOrInsert(Object[] keys, int from) {
    int hits = 0;
    for (int i = from; i < from + CHUNK; i++) {
      if (cache.getIfPresent(keys[i]) != null) { hits++; } else { cache.put(keys[i], keys[i]); }
    }
    return hits;
  }

  int lookAndWrite(Object[] keys, int from) {
    int hits = 0;
    for (int i = from; i < from + CHUNK; i++) {
      if (i % 4 == 3) { cache.put(keys[i], keys[i]); } else if (cache.getIfPresent(keys[i]) != null) { hits++; }
    }
    return hits;
  }

  int chunk(int thread) {
    var keys = streams[thread];
    int from = positions[thread];
    positions[thread] = (from + CHUNK) % keys.length;
    switch (work) {
      case "look": return look(keys, from);
      case "look-or-insert": return lookOrInsert(keys, from);
      default: return lookAndWrite(keys, from);
    }
  }

  static long waited() {
    try { return Long.parseLong(Files.readString(Path.of("/proc/thread-self/schedstat")).trim().split(" ")[1]); }
    catch (IOException | RuntimeException error) { return 0; }
  }

  String run(int threads, long milliseconds) throws Exception {
    isOver = false;
    var clock = ManagementFactory.getThreadMXBean();
    var laps = new String[threads];
    var crew = new Thread[threads];
    var barrier = new CyclicBarrier(threads);
    for (int number = 0; number < threads; number++) {
      int thread = number;
      crew[number] = new Thread(() -> {
        try { barrier.await(); } catch (Exception error) { throw new IllegalStateException(error); }
        long processor = clock.getCurrentThreadCpuTime(), wall = System.nanoTime(), waited = waited(), operations = 0, hits = 0;
        while (!isOver) { hits += chunk(thread); operations += CHUNK; }
        laps[thread] = operations + " " + hits + " " + (clock.getCurrentThreadCpuTime() - processor)
            + " " + (System.nanoTime() - wall) + " " + (waited() - waited);
      });
      crew[number].start();
    }
    Thread.sleep(milliseconds);
    isOver = true;
    for (var member : crew) { member.join(); }
    return String.join(" ", laps);
  }

  public static void main(String[] arguments) throws Exception {
    var peer = new CaffeinePeer(arguments);
    // Long enough for the optimizing compiler; on both ways of being run.
    for (int round = 0; round < 6; round++) { peer.run(1, 400); }
    for (int round = 0; round < 3; round++) { peer.run(peer.streams.length, 400); }
    System.out.println("ready");
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (var line = lines.readLine(); line != null; line = lines.readLine()) {
      var words = line.split(" ");
      System.out.println(peer.run(Integer.parseInt(words[0]), Long.parseLong(words[1])));
    }
  }
}
