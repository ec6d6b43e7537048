import { brokenPromises, contractLines, type Descriptor } from './contract-text.ts';

const descriptor: Descriptor = {
  file: [
    {
      package: 'margay.demo.v1',
      messageType: [
        {
          name: 'Say',
          field: [
            { name: 'text', number: 1, label: 'LABEL_OPTIONAL', type: 'TYPE_STRING' },
            { name: 'tags', number: 2, label: 'LABEL_REPEATED', type: 'TYPE_STRING' },
            {
              name: 'at',
              number: 3,
              label: 'LABEL_OPTIONAL',
              type: 'TYPE_MESSAGE',
              typeName: '.google.protobuf.Timestamp',
              oneofIndex: 0,
            },
            {
              name: 'note',
              number: 4,
              label: 'LABEL_OPTIONAL',
              type: 'TYPE_STRING',
              oneofIndex: 1,
              proto3Optional: true,
            },
          ],
          oneofDecl: [{ name: 'moment' }, { name: '_note' }],
          nestedType: [{ name: 'Part' }],
          enumType: [{ name: 'Tone', value: [{ name: 'TONE_UNSPECIFIED' }, { name: 'TONE_SOFT', number: 1 }] }],
        },
      ],
      service: [
        {
          name: 'Demo',
          method: [
            {
              name: 'Talk',
              inputType: '.margay.demo.v1.Say',
              outputType: '.margay.demo.v1.Say',
              serverStreaming: true,
            },
          ],
        },
      ],
    },
    { package: 'google.protobuf', messageType: [{ name: 'Timestamp' }], bufExtension: { isImport: true } },
  ],
};
const released = contractLines(descriptor);
const without = (part: string, ...instead: string[]) => [
  ...released.filter((line) => !line.includes(part)),
  ...instead,
];

describe('contractLines', () => {
  it('writes every promise of our own files as one line', () => {
    expect(released).toEqual([
      'margay.demo.v1.Demo.Talk(margay.demo.v1.Say) returns (stream margay.demo.v1.Say)',
      'margay.demo.v1.Say 1 text: string',
      'margay.demo.v1.Say 2 tags: repeated string',
      'margay.demo.v1.Say 3 at: google.protobuf.Timestamp in moment',
      'margay.demo.v1.Say 4 note: optional string',
      'margay.demo.v1.Say message',
      'margay.demo.v1.Say.Part message',
      'margay.demo.v1.Say.Tone 0 TONE_UNSPECIFIED',
      'margay.demo.v1.Say.Tone 1 TONE_SOFT',
    ]);
  });
});

describe('brokenPromises', () => {
  it('is empty when things were only added', () => {
    expect(brokenPromises(released, [...released, 'margay.demo.v1.Say 5 more: string'])).toEqual([]);
  });

  it.each([
    ['a removed field', without('1 text'), ['removed: margay.demo.v1.Say 1 text: string']],
    [
      'a renumbered field',
      without('1 text', 'margay.demo.v1.Say 9 text: string'),
      ['renumbered: margay.demo.v1.Say 1 text: string\n        now: margay.demo.v1.Say 9 text: string'],
    ],
    [
      'a field of another type',
      without('1 text', 'margay.demo.v1.Say 1 text: bytes'),
      ['changed: margay.demo.v1.Say 1 text: string\n     now: margay.demo.v1.Say 1 text: bytes'],
    ],
    ['a removed enum value', without('TONE_SOFT'), ['removed: margay.demo.v1.Say.Tone 1 TONE_SOFT']],
    ['a removed message', without('Part message'), ['removed: margay.demo.v1.Say.Part message']],
    [
      'a method that no longer streams',
      without('Talk', 'margay.demo.v1.Demo.Talk(margay.demo.v1.Say) returns (margay.demo.v1.Say)'),
      [
        'changed: margay.demo.v1.Demo.Talk(margay.demo.v1.Say) returns (stream margay.demo.v1.Say)\n' +
          '     now: margay.demo.v1.Demo.Talk(margay.demo.v1.Say) returns (margay.demo.v1.Say)',
      ],
    ],
  ])('names %s', (_, present, expected) => {
    expect(brokenPromises(released, present)).toEqual(expected);
  });
});
