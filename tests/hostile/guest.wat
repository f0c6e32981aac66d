;; An operator by hand, for what no bindings can say: pointers outside memory, text that is none, functions that are not there.
;; Honestly it emits every record's value to output 0. $bad tells whether a call has the key "bad": no other key has a `d`.
;; The words in capitals are replaced: FIELDS by more fields of the module, MEMORY by its pages, the others by what a function does first.
(module $hostile
  FIELDS
  (memory (export "memory") MEMORY)
  ;; The descriptor at 1024, the name `hostile`, version `1`, ports `in` and `out` without flags.
  (data (i32.const 1024) "\80\04\00\00\07\00\00\00" "\87\04\00\00\01\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00"
    "\a0\04\00\00\01\00\00\00" "\b0\04\00\00\01\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00")
  (data (i32.const 1152) "hostile1inout")
  (data (i32.const 1184) "\88\04\00\00\02\00\00\00\00\00\00\00" "\00\00\00\00" "\8a\04\00\00\03\00\00\00\00\00\00\00")
  ;; Text that is no UTF-8, and a list of one such text.
  (data (i32.const 1280) "\ff\fe\80bad\c0" "\00" "\00\05\00\00\07\00\00\00")
  (global $heap (mut i32) (i32.const 65536))

  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    REALLOC
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (block $fits
      (br_if $fits (i32.le_u (global.get $heap) (i32.shl (memory.size) (i32.const 16))))
      (br_if $fits (i32.ge_s (memory.grow (i32.const 16)) (i32.const 0)))
      unreachable)
    (local.get $at))

  (func (export "describe") (result i32) DESCRIBE (i32.const 1024))

  (func $clear (memory.fill (i32.const 40000) (i32.const 0) (i32.const 200)) (global.set $heap (i32.const 65536)))

  (func (export "configure") (param i32 i32 i32 i32 i32) (result i32) (call $clear) CONFIGURE (i32.const 40000))

  (func $bad (param $args i32) (result i32)
    (local $at i32) (local $end i32)
    (local.set $at (i32.load offset=24 (local.get $args)))
    (local.set $end (i32.add (local.get $at) (i32.load offset=28 (local.get $args))))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
      (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 100)) (then (return (i32.const 1))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $next)))
    (i32.const 0))

  ;; The effects from 40004 on, behind the result's tag: consumed, outputs (zeros at 50000), origins (42000), values as they came.
  (func $honest (param $args i32)
    (local $i i32) (local $count i32)
    (call $clear)
    (local.set $count (i32.shr_u (i32.load offset=52 (local.get $args)) (i32.const 2)))
    (i32.store (i32.const 40004) (local.get $count))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $i) (local.get $count)))
      (i32.store (i32.add (i32.const 42000) (i32.shl (local.get $i) (i32.const 2))) (local.get $i))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (i32.store (i32.const 40008) (i32.const 50000))
    (i32.store (i32.const 40012) (i32.shl (local.get $count) (i32.const 1)))
    (i32.store (i32.const 40016) (i32.const 42000))
    (i32.store (i32.const 40020) (i32.shl (local.get $count) (i32.const 2)))
    (memory.copy (i32.const 40064) (i32.add (local.get $args) (i32.const 64)) (i32.const 16)))

  (func (export "process") (param $args i32) (result i32)
    (call $honest (local.get $args))
    (if (call $bad (local.get $args)) (then PROCESS))
    (i32.const 40000))

  (func (export "fire") (param $args i32) (result i32) (call $clear) (i32.const 40000))
  (func (export "migrate") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)
  (func (export "rekey") (param i32 i32 i32 i32 i32 i32) (result i32) unreachable)
  (func (export "merge") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)
)
