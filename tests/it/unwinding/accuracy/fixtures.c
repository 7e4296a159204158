/* C functions of many shapes, for the stepper. They allocate nothing. Exported ones call each other through the PLT. */
#include <alloca.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_LINE __attribute__((noinline, noclone))

typedef void (*call_back)(unsigned long);

OUT_OF_LINE unsigned long acc_leaf(unsigned long value) {
    return (value << 3 | value >> 61) ^ 5;
}

OUT_OF_LINE static unsigned long hidden_leaf(unsigned long value) {
    __asm__ volatile("" : "+r"(value));
    return value * 7 + 1;
}

OUT_OF_LINE unsigned long acc_small(unsigned long value) {
    return acc_leaf(value) + hidden_leaf(value) + 1;
}

OUT_OF_LINE unsigned long acc_many_registers(unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    unsigned long e = acc_leaf(a ^ b), f = acc_leaf(c ^ d), g = acc_leaf(a ^ e), h = acc_leaf(b ^ f);
    return acc_leaf(a + b + c + d + e + f + g + h) ^ a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
}

OUT_OF_LINE unsigned long acc_large_frame(unsigned long value) {
    volatile unsigned long memory[3000];
    memory[value % 3000] = acc_leaf(value);
    return memory[value % 3000] + hidden_leaf(value);
}

OUT_OF_LINE unsigned long acc_aligned_frame(unsigned long value) {
    volatile unsigned long memory[16] __attribute__((aligned(64)));
    memory[value % 16] = acc_leaf(value);
    return memory[value % 16];
}

/* A frame whose size is known only at run time. */
OUT_OF_LINE unsigned long acc_dynamic_frame(unsigned long value) {
    volatile char *memory = alloca(value % 500 + 64);
    memory[3] = (char)acc_leaf(value);
    return hidden_leaf((unsigned long)memory[3]);
}

/* Both at once: a register of its own locates the frame. With frame pointers, gcc's tables are wrong for one instruction:
   after `leave`, they still describe the caller's frame pointer as being on the stack. */
OUT_OF_LINE unsigned long acc_dynamic_aligned_frame(unsigned long value) {
    volatile unsigned long aligned[8] __attribute__((aligned(32)));
    volatile char *memory = alloca(value % 300 + 64);
    memory[5] = (char)value;
    aligned[2] = acc_leaf((unsigned long)memory[5]);
    return aligned[2];
}

OUT_OF_LINE unsigned long acc_sum(int count, ...) {
    va_list list;
    va_start(list, count);
    unsigned long sum = 0;
    while (count-- > 0)
        sum += acc_leaf(va_arg(list, unsigned long));
    va_end(list);
    return sum;
}

OUT_OF_LINE unsigned long acc_tail_called(unsigned long value) {
    return acc_leaf(value) ^ 2;
}

OUT_OF_LINE unsigned long acc_tail_call(unsigned long value) {
    return acc_tail_called(value ^ 1);
}

OUT_OF_LINE unsigned long acc_recursive(unsigned long depth) {
    return depth == 0 ? acc_leaf(1) : acc_recursive(depth - 1) * 3 + 1;
}

OUT_OF_LINE unsigned long acc_switches(unsigned long value) {
    switch (value % 6) {
    case 0: return acc_leaf(1);
    case 1: return acc_small(2) + 7;
    case 2: return hidden_leaf(value);
    case 3: return acc_leaf(value) * hidden_leaf(3);
    case 4: return 4;
    default: return acc_small(value);
    }
}

/* Calls each of the functions above. */
unsigned long acc_all(unsigned long value) {
    unsigned long sum = acc_small(value) + acc_many_registers(value, 2, 3, 4) + acc_large_frame(value);
    sum += acc_aligned_frame(value) + acc_dynamic_frame(value) + acc_dynamic_aligned_frame(value);
    sum += acc_sum(8, 1ul, 2ul, 3ul, 4ul, 5ul, 6ul, 7ul, value) + acc_tail_call(value) + acc_recursive(5);
    for (unsigned long which = 0; which < 6; which++)
        sum += acc_switches(which);
    return sum;
}

/* Calls from C back into the program. */
void acc_calls_back(call_back back, unsigned long value) {
    back(acc_leaf(value));
    __asm__ volatile("" ::: "memory");
}

/* Calls libc through the PLT. */
unsigned long acc_calls_libc(char *to, const char *from, unsigned long bytes) {
    memcpy(to, from, bytes);
    __asm__ volatile("" ::: "memory");
    return strlen(to) + (unsigned long)labs((long)to[0]);
}
