// A generator's word makes a number at once 99 times of 100, so words are made many at a time, in several chains that
// do not wait for each other. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for
// Random Number Generation", 2014 (XSL RR 128/64); Marsaglia, Tsang, "The Ziggurat Method for Generating Random
// Variables", 2000; the tail: Marsaglia, "Generating a Variable from the Tail of the Normal Distribution", 1964.
#include "normals.h"

#ifdef POLYRHYTHM_NORMALS
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ziggurat.h"

namespace {

using Wide = unsigned __int128;

constexpr Wide joined(uint64_t high, uint64_t low) { return (Wide(high) << 64) | low; }
constexpr Wide FACTOR = joined(0x2360ed051fc65da4, 0x4385df649fccf645);
constexpr int CHAINS = 4, AT_ONCE = 512;

// Eight words of 32 bits from four, as NumPy's SeedSequence makes them: two times the mixing of O'Neill, "Developing a
// seed_seq Alternative", 2015.
class Seeds {
   public:
    explicit Seeds(const uint32_t (&entropy)[4]) {
        uint32_t by = 0x43b0d7e5;
        for (int i = 0; i < 4; ++i) pool_[i] = hashed(entropy[i], by, 0x931e8875);
        for (int from = 0; from < 4; ++from)
            for (int to = 0; to < 4; ++to)
                if (from != to) {
                    const uint32_t other = hashed(pool_[from], by, 0x931e8875);
                    const uint32_t mixed = pool_[to] * 0xca01f9dd - other * 0x4973f715;
                    pool_[to] = mixed ^ (mixed >> 16);
                }
    }

    uint64_t next() {
        const uint64_t low = word();
        return low | (uint64_t(word()) << 32);
    }

   private:
    static uint32_t hashed(uint32_t value, uint32_t& by, uint32_t factor) {
        value ^= by, by *= factor, value *= by;
        return value ^ (value >> 16);
    }

    uint32_t word() { return hashed(pool_[made_++ & 3], by_, 0x58f38ded); }

    uint32_t pool_[4], by_ = 0x8b51f9dd;
    int made_ = 0;
};

// The generator's words, in order.
class Words {
   public:
    Words(uint64_t seed_high, uint64_t seed_low) {
        Seeds seeds({uint32_t(seed_low), uint32_t(seed_low >> 32), uint32_t(seed_high), uint32_t(seed_high >> 32)});
        const uint64_t a = seeds.next(), b = seeds.next(), c = seeds.next(), d = seeds.next();
        const Wide step = (joined(c, d) << 1) | 1;
        Wide state = (joined(a, b) + step) * FACTOR + step;
        for (Wide& chain : chains_) {
            chain = state = state * FACTOR + step;
            far_ = far_ * FACTOR + step, factor_ *= FACTOR;  // as far as from one word of a chain to its next
        }
    }

    uint64_t next() {
        if (at_ == AT_ONCE) fill();
        return words_[at_++];
    }

    double uniform() { return double(next() >> 11) * 0x1p-53; }

    // Those that are made already, one at least.
    const uint64_t* ahead(int64_t& count) {
        if (at_ == AT_ONCE) fill();
        count = AT_ONCE - at_;
        return words_ + at_;
    }

    void skip(int64_t count) { at_ += int(count); }

   private:
    void fill() {
        for (int i = 0; i < AT_ONCE; i += CHAINS)
            for (int c = 0; c < CHAINS; ++c) {
                const uint64_t high = uint64_t(chains_[c] >> 64), low = uint64_t(chains_[c]);
                const unsigned turn = unsigned(high >> 58);
                words_[i + c] = ((high ^ low) >> turn) | ((high ^ low) << (-turn & 63));
                chains_[c] = chains_[c] * factor_ + far_;
            }
        at_ = 0;
    }

    Wide chains_[CHAINS], factor_ = 1, far_ = 0;
    uint64_t words_[AT_ONCE];
    int at_ = AT_ONCE;
};

// The density at the ends of the layers, without its constant.
struct Heights {
    double of[256];
    Heights() {
        of[0] = 1.0;
        for (int i = 1; i < 256; ++i) of[i] = std::exp(-0.5 * (WIDTH[i] * 0x1p52) * (WIDTH[i] * 0x1p52));
    }
};

double beyond(Words& words, bool negative) {
    for (;;) {
        const double x = -(1.0 / TAIL) * std::log1p(-words.uniform()), y = -std::log1p(-words.uniform());
        if (y + y > x * x) return negative ? -(TAIL + x) : TAIL + x;
    }
}

// A word is a layer (8 bits), a sign (1) and a place in the layer (52).
int layer_of(uint64_t word) { return int(word & 0xff); }
uint64_t place_of(uint64_t word) { return (word >> 9) & 0xfffffffffffff; }
double at(uint64_t word) {
    const double x = double(int64_t(place_of(word))) * WIDTH[layer_of(word)];
    uint64_t bits;
    std::memcpy(&bits, &x, 8);
    bits |= (word & 0x100) << 55;
    double signed_x;
    std::memcpy(&signed_x, &bits, 8);
    return signed_x;
}

template <class Number>
void draw(Number* out, int64_t size, uint64_t seed_high, uint64_t seed_low) {
    static const Heights heights;
    Words words(seed_high, seed_low);
    for (int64_t done = 0; done < size;) {
        int64_t count, i = 0;
        const uint64_t* ahead = words.ahead(count);
        count = std::min(count, size - done);
        for (; i < count && place_of(ahead[i]) < SURE[layer_of(ahead[i])]; ++i) out[done + i] = Number(at(ahead[i]));
        words.skip(i), done += i;
        if (i == count) continue;
        const uint64_t word = words.next();
        const int layer = layer_of(word);
        if (layer == 0) {
            out[done++] = Number(beyond(words, (place_of(word) >> 8) & 1));
            continue;
        }
        const double x = at(word), above = heights.of[layer - 1] - heights.of[layer];
        if (above * words.uniform() + heights.of[layer] < std::exp(-0.5 * x * x)) out[done++] = Number(x);
    }
}

}  // namespace

void normals(double* out, int64_t size, uint64_t seed_high, uint64_t seed_low) { draw(out, size, seed_high, seed_low); }
void normals(float* out, int64_t size, uint64_t seed_high, uint64_t seed_low) { draw(out, size, seed_high, seed_low); }
#endif
