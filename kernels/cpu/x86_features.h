// The features that an x86-64 processor and its operating system offer the kernels. Each is queried
// once, at run time.
#pragma once

namespace thermocline::kernels {

bool HasAvx2();            // with FMA and F16C
bool HasAvxVnni();         // AVX2 with VEX-encoded byte dot products
bool HasAvx512();          // F, BW, VL, DQ, VNNI
bool HasVectorPopcount();  // AVX-512 with VPOPCNTDQ
// AVX-512, AMX-TILE and AMX-INT8; requests the kernel's permission to use tiles.
bool HasAmx();

}  // namespace thermocline::kernels
