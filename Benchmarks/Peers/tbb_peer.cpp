// TBB's concurrent_lru_cache in a race that another process runs, in the words of CaffeinePeer.java. It can only get or make.
#define TBB_PREVIEW_CONCURRENT_LRU_CACHE 1
#include <tbb/concurrent_lru_cache.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

static constexpr size_t chunk = 1024;
static thread_local uint64_t misses = 0;
static uint64_t make(uint64_t key) { misses++; return key; }

static std::vector<uint64_t> keys(const char *path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::vector<uint64_t> keys(size_t(file.tellg()) / sizeof(uint64_t));
    file.seekg(0).read(reinterpret_cast<char *>(keys.data()), std::streamsize(keys.size() * sizeof(uint64_t)));
    return keys;
}

static uint64_t now(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return uint64_t(time.tv_sec) * 1000000000 + uint64_t(time.tv_nsec);
}

static uint64_t waited() {
    uint64_t ran = 0, waited = 0;
    std::ifstream("/proc/thread-self/schedstat") >> ran >> waited;
    return waited;
}

int main(int count, char **arguments) {
    if (count < 6) return 64;
    tbb::concurrent_lru_cache<uint64_t, uint64_t> cache(make, size_t(std::atoll(arguments[3])));
    for (uint64_t key : keys(arguments[4])) cache[key];
    std::vector<std::vector<uint64_t>> streams;
    for (int index = 5; index < count; index++) streams.push_back(keys(arguments[index]));
    std::vector<size_t> positions(streams.size());
    std::cout << "ready" << std::endl;

    int size, milliseconds;
    while (std::cin >> size >> milliseconds) {
        std::atomic<int> ready{0};
        std::atomic<bool> over{false};
        std::vector<std::string> laps(static_cast<size_t>(size));
        std::vector<std::thread> crew;
        for (size_t number = 0; number < size_t(size); number++)
            crew.emplace_back([&, number] {
                ready++;
                while (ready < size) {}
                uint64_t processor = now(CLOCK_THREAD_CPUTIME_ID), wall = now(CLOCK_MONOTONIC), wait = waited(), operations = 0, sum = 0;
                misses = 0;
                auto &stream = streams[number];
                while (!over) {
                    for (size_t end = positions[number] + chunk; positions[number] < end; positions[number]++) sum += cache[stream[positions[number]]].value();
                    positions[number] %= stream.size();
                    operations += chunk;
                }
                std::ostringstream lap;
                lap << operations << ' ' << operations - misses << ' ' << now(CLOCK_THREAD_CPUTIME_ID) - processor << ' '
                    << now(CLOCK_MONOTONIC) - wall << ' ' << waited() - wait << (sum == 1 ? "  " : "");
                laps[number] = lap.str();
            });
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        over = true;
        for (auto &thread : crew) thread.join();
        for (auto &lap : laps) std::cout << lap << ' ';
        std::cout << std::endl;
    }
}
